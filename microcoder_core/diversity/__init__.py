"""How different the responses to one prompt are, and the temperature that follows from it."""
