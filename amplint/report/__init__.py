"""What users and other programs read: a run's result as text, JSON or a diff."""

#: Formats that can be written; the configuration knows names of more.
FORMATS = ("text", "concise", "json", "jsonl")

#: Those that are all there is on stdout, because programs read them.
FOR_PROGRAMS = ("json", "jsonl")
