"""Plain text: normal form, language, paragraphs, sentences."""
