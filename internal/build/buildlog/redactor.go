package buildlog

import "strings"

// Redactor hides secrets in complete lines, such as those of a running program, in the same forms as a build's log.
// Values of fewer than six bytes are ignored. It is safe for concurrent use.
type Redactor struct{ hide *automaton }

// NewRedactor returns a Redactor for these values.
func NewRedactor(secrets []string) *Redactor { return &Redactor{compile(secrets)} }

// Redact returns the line without the secrets.
func (r *Redactor) Redact(line string) string {
	_, spans := r.hide.scan(0, []byte(line), 0, nil)
	if len(spans) == 0 {
		return line
	}
	var out strings.Builder
	at := 0
	for _, s := range spans {
		out.WriteString(line[at:s.start])
		out.WriteString(redacted)
		at = s.end
	}
	out.WriteString(line[at:])
	return out.String()
}
