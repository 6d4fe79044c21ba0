"""Chat: from messages to the text of a prompt."""
