"""What users and other programs read: a run's result as text, JSON, a diff, or what a CI server takes."""

#: Formats that can be written; the configuration knows names of more.
FORMATS = ("text", "concise", "json", "jsonl", "sarif", "github", "gitlab", "junit", "markdown")

#: Those that are all there is on stdout, because programs read them.
FOR_PROGRAMS = FORMATS[2:]
