"""The matching models for fine-tuning: one file each."""
