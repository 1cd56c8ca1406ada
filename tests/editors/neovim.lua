-- A user's minute in Neovim with sample/train.py; what was seen is written as JSON to $SEEN.
-- Run by test_neovim.py in a Neovim that is set up as docs/editors.md says.

local seen = {}

local function wait(what, condition)
  if not vim.wait(20000, condition, 20) then
    seen.timeout = what
    error("waited in vain for " .. what)
  end
end

local function diagnostics()
  local found = {}
  for _, each in ipairs(vim.diagnostic.get(0)) do
    local length = each.end_col - each.col
    local line = vim.api.nvim_buf_get_lines(0, each.lnum, each.lnum + 1, false)[1]
    table.insert(found, {
      code = each.code,
      line = each.lnum + 1,
      text = line:sub(each.col + 1, each.col + length),
      message = each.message,
      severity = vim.diagnostic.severity[each.severity],
      source = each.source,
    })
  end
  return found
end

local function has(code)
  for _, each in ipairs(vim.diagnostic.get(0)) do
    if each.code == code then
      return true
    end
  end
  return false
end

local function text()
  return table.concat(vim.api.nvim_buf_get_lines(0, 0, -1, false), "\n") .. "\n"
end

-- The lines of the screen, as the user sees them.
local function screen()
  vim.cmd.redraw()
  local lines = {}
  for row = 1, vim.o.lines do
    local cells = {}
    for column = 1, vim.o.columns do
      table.insert(cells, vim.fn.screenstring(row, column))
    end
    table.insert(lines, (table.concat(cells):gsub("%s+$", "")))
  end
  return lines
end

-- The ranges that are underlined.
local function squiggles()
  local found = {}
  for _, namespace in pairs(vim.api.nvim_get_namespaces()) do
    for _, mark in ipairs(vim.api.nvim_buf_get_extmarks(0, namespace, 0, -1, { details = true })) do
      local highlight = tostring(mark[4].hl_group or "")
      if highlight:find("^DiagnosticUnderline") then
        table.insert(found, { line = mark[2] + 1, highlight = highlight })
      end
    end
  end
  return found
end

local function go_to(pattern)
  vim.fn.cursor(1, 1)
  assert(vim.fn.search(pattern, "cW") > 0, "not in the file: " .. pattern)
end

local function scenario()
  wait("a server", function() return #vim.lsp.get_clients({ bufnr = 0 }) > 0 end)
  local client = vim.lsp.get_clients({ bufnr = 0 })[1]
  wait("diagnostics", function() return has("AMP201") end)
  seen.root = client.root_dir
  seen.encoding = client.offset_encoding
  seen.pulls = client:supports_method("textDocument/diagnostic")
  seen.diagnostics = diagnostics()
  seen.squiggles = squiggles()

  wait("inlay hints", function() return #vim.lsp.inlay_hint.get({ bufnr = 0 }) > 0 end)
  wait("an inlay hint on the screen", function()
    seen.screen = screen()
    return table.concat(seen.screen, "\n"):find("float16 (autocast)", 1, true)
  end)
  seen.hints = vim.tbl_map(function(each)
    return { line = each.inlay_hint.position.line + 1, label = each.inlay_hint.label }
  end, vim.lsp.inlay_hint.get({ bufnr = 0 }))

  go_to("clip_grad_norm_")
  vim.lsp.buf.hover()
  local shown
  wait("a hover", function()
    for _, window in ipairs(vim.api.nvim_list_wins()) do
      if vim.api.nvim_win_get_config(window).relative ~= "" then
        shown = window
        return true
      end
    end
  end)
  seen.hover_on_screen = screen()
  seen.hover = table.concat(vim.api.nvim_buf_get_lines(vim.api.nvim_win_get_buf(shown), 0, -1, false), "\n")
  vim.api.nvim_win_close(shown, true)

  seen.before = text()
  local offered = {}
  vim.lsp.buf.code_action({
    apply = true,
    filter = function(action)
      table.insert(offered, action.title)
      return action.isPreferred
    end,
  })
  wait("the quick fix", function() return text():find("scaler.unscale_(optimizer)", 1, true) end)
  seen.offered = offered
  seen.after_fix = text()
  wait("AMP201 to go", function() return not has("AMP201") end)

  vim.cmd.undo()
  seen.after_undo = text()
  wait("AMP201 to come back", function() return has("AMP201") end)

  vim.lsp.buf.code_action({ apply = true, context = { only = { "source.fixAll" }, diagnostics = {} } })
  wait("fix all", function() return text() ~= seen.before end)
  seen.after_fix_all = text()
  wait("the fixed findings to go", function() return not has("AMP101") and not has("AMP102") end)
  seen.left = diagnostics()

  vim.cmd.undo()
  seen.after_second_undo = text()
end

local ok, problem = xpcall(scenario, debug.traceback)
seen.problem = not ok and problem or nil
vim.fn.writefile({ vim.json.encode(seen) }, vim.env.SEEN)
vim.cmd("qall!")
