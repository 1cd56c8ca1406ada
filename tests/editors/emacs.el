;;; A user's minute in Emacs with sample/train.py; what was seen is written as JSON to $SEEN.  -*- lexical-binding: t -*-
;;; Run by test_emacs.py after the set-up of docs/editors.md.

(require 'json)
(require 'flymake)
(defvar seen nil)

(defun saw (name value)
  "Note VALUE under NAME."
  (push (cons name value) seen))

(defun wait-for (what condition)
  "Let Emacs work until CONDITION holds; WHAT is said when it never does."
  (let ((deadline (+ (float-time) 30)))
    (while (not (funcall condition))
      (when (> (float-time) deadline) (error "Waited in vain for %s" what))
      (when (eglot-current-server)
        (eglot--signal-textDocument/didChange)) ; by a timer for idle moments, which batch has none of
      (accept-process-output nil 0.1))))

(defun text ()
  "The text of the buffer."
  (buffer-substring-no-properties (point-min) (point-max)))

(defun found (code)
  "Whether a diagnostic with CODE is shown."
  (seq-some (lambda (each) (string-match-p code (flymake-diagnostic-text each))) (flymake-diagnostics)))

(defun choose-action (beg end kind title)
  "Choose the code action with TITLE in the menu for BEG to END; KIND restricts it. Gives all titles."
  (let (offered)
    (cl-letf (((symbol-function 'completing-read)
               (lambda (_prompt choices &rest _)
                 (setq offered (mapcar #'car choices))
                 (seq-find (lambda (each) (string-match-p title each)) offered))))
      (let ((last-nonmenu-event t)) ; not a click
        (eglot-code-actions beg end kind t)))
    offered))

(defun scenario ()
  "Do what a user does."
  (setq eglot-confirm-server-initiated-edits nil eglot-sync-connect 30)
  (find-file "train.py")
  (run-hooks 'post-command-hook) ; eglot-ensure waits for the end of the command, which nothing ends in batch
  (wait-for "a server" #'eglot-current-server)
  (wait-for "diagnostics" (lambda () (found "loss scale")))
  (saw 'diagnostics
       (vconcat (mapcar (lambda (each)
                          `((text . ,(flymake-diagnostic-text each))
                            (at . ,(buffer-substring-no-properties (flymake-diagnostic-beg each)
                                                                   (flymake-diagnostic-end each)))))
                        (flymake-diagnostics))))
  (goto-char (point-min))
  (search-forward "clip_grad_norm_")
  (saw 'hover (plist-get (plist-get (jsonrpc-request (eglot-current-server) :textDocument/hover
                                                     (eglot--TextDocumentPositionParams))
                                    :contents)
                         :value))
  (saw 'before (text))
  (undo-boundary)
  (saw 'offered (vconcat (choose-action (point) (point) nil "unscale_")))
  (wait-for "the quick fix" (lambda () (string-match-p "scaler.unscale_(optimizer)" (text))))
  (saw 'after_fix (text))
  (wait-for "AMP201 to go" (lambda () (not (found "loss scale"))))
  (undo-boundary)
  (undo)
  (saw 'after_undo (text))
  (wait-for "AMP201 to come back" (lambda () (found "loss scale")))
  (undo-boundary)
  (choose-action (point-min) (point-max) "source.fixAll.amplint" "Fix all")
  (wait-for "fix all" (lambda () (not (string-match-p "torch.cuda.amp" (text)))))
  (saw 'after_fix_all (text))
  (undo-boundary)
  (setq last-command nil)
  (undo)
  (saw 'after_second_undo (text))
  (set-buffer-modified-p nil)
  (eglot-shutdown (eglot-current-server)))

(condition-case problem
    (scenario)
  (error (saw 'problem (format "%S" problem))))
(write-region (json-encode seen) nil (getenv "SEEN"))
