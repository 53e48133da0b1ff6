"""Reddit's dumps -> dialogues."""
