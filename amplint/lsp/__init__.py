"""The language server: the same analyses over what is in the editor. Needs the extra `lsp` (pygls)."""
