//go:build browser

package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// curl runs a command from the dashboard exactly as a POSIX shell would parse it, with a key in $SLIPWAY_KEY. It
// returns the response's status and body.
func (h *harness) curl(command, key string) (status int, body string) {
	h.t.Helper()
	argv, err := shellWords(command, map[string]string{"SLIPWAY_KEY": key})
	if err != nil {
		h.t.Fatalf("%s: %v", command, err)
	}
	if len(argv) == 0 || argv[0] != "curl" {
		h.t.Fatalf("not a curl command: %q", command)
	}
	ctx, cancel := context.WithTimeout(h.t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], append(argv[1:], "--silent", "--show-error", "--write-out", "\n%{http_code}")...)
	cmd.Env = append(os.Environ(), "HOME="+h.t.TempDir()) // don't read the developer's .curlrc
	out, err := cmd.CombinedOutput()
	if err != nil {
		h.t.Fatalf("%s: %v\n%s", command, err, out)
	}
	at := strings.LastIndexByte(string(out), '\n')
	fmt.Sscan(string(out[at:]), &status)
	return status, string(out[:at])
}

// asked is curl for requests that must succeed and return JSON.
func (h *harness) asked(command, key string, out any) {
	h.t.Helper()
	status, body := h.curl(command, key)
	if status/100 != 2 {
		h.t.Fatalf("%s\nanswers %d: %s", command, status, body)
	}
	if err := json.Unmarshal([]byte(body), out); err != nil {
		h.t.Fatalf("%s\nanswers %s: %v", command, body, err)
	}
}

// shellWords splits a command like a POSIX shell. It knows both kinds of quotes, backslashes, continued lines and
// variables. All other shell syntax is an error, because the dashboard must not show it.
func shellWords(command string, vars map[string]string) (words []string, err error) {
	var word strings.Builder
	open := false // a word has begun, even if it is empty
	end := func() {
		if open {
			words = append(words, word.String())
		}
		word.Reset()
		open = false
	}
	for i := 0; i < len(command); i++ {
		switch c := command[i]; {
		case c == ' ' || c == '\t':
			end()
		case c == '\\' && i+1 < len(command) && command[i+1] == '\n':
			i++
		case c == '\\' && i+1 < len(command):
			i++
			word.WriteByte(command[i])
			open = true
		case c == '\'':
			text, _, closed := strings.Cut(command[i+1:], "'")
			if !closed {
				return nil, fmt.Errorf("a quote stays open")
			}
			word.WriteString(text)
			i += len(text) + 1
			open = true
		case c == '"':
			text, n, err := doubleQuoted(command[i+1:], vars)
			if err != nil {
				return nil, err
			}
			word.WriteString(text)
			i += n
			open = true
		case strings.IndexByte("$`|&;<>()*?[]{}#~!\n", c) >= 0:
			return nil, fmt.Errorf("a shell would not take %q as it is", c)
		default:
			word.WriteByte(c)
			open = true
		}
	}
	end()
	return words, nil
}

// doubleQuoted reads up to the closing quote and returns the text and the number of bytes read.
func doubleQuoted(text string, vars map[string]string) (out string, n int, err error) {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			return b.String(), i + 1, nil
		case c == '\\' && i+1 < len(text) && strings.IndexByte("$`\"\\", text[i+1]) >= 0:
			i++
			b.WriteByte(text[i])
		case c == '$':
			name := text[i+1:]
			name = name[:len(name)-len(strings.TrimLeft(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_"))]
			value, ok := vars[name]
			if !ok {
				return "", 0, fmt.Errorf("no variable $%s", name)
			}
			b.WriteString(value)
			i += len(name)
		case c == '`':
			return "", 0, fmt.Errorf("a command in a quote")
		default:
			b.WriteByte(c)
		}
	}
	return "", 0, fmt.Errorf("a quote stays open")
}

func TestBrowserShellWords(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"curl -X POST http://h/x \\\n  -H \"Authorization: Bearer $KEY\"": `["curl","-X","POST","http://h/x","-H","Authorization: Bearer k y"]`,
		`curl --json '{"name":"it'\''s"}'`:                                `["curl","--json","{\"name\":\"it's\"}"]`,
		`curl '' "a\"b"`:                                                  `["curl","","a\"b"]`,
		`curl $KEY`:                                                       `null`,
		`curl a; rm b`:                                                    `null`,
		`curl 'a`:                                                         `null`,
		`curl "$OTHER"`:                                                   `null`,
	} {
		got, err := shellWords(in, map[string]string{"KEY": "k y"})
		if err != nil {
			got = nil
		}
		if text, _ := json.Marshal(got); string(text) != want {
			t.Errorf("%s is %s, want %s (%v)", in, text, want, err)
		}
	}
}
