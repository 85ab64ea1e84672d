"""Text, Markdown, HTML and JSON from the model."""
