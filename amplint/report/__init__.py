"""What users and other programs read: a run's result as text, JSON, a diff, or what a CI server takes."""

from amplint.config import OUTPUT_FORMATS

#: Formats of a report.
FORMATS = OUTPUT_FORMATS

#: Those that are all there is on stdout, because programs read them.
FOR_PROGRAMS = FORMATS[2:]
