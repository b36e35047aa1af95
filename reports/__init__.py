"""Verdicts as text, Markdown, JUnit XML and HTML."""
