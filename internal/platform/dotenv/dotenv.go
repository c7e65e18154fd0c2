// Package dotenv owns reading and writing .env files, and guesses which variables are secret.
package dotenv

import (
	"fmt"
	"regexp"
	"strings"

	"slipway/internal/platform/fault"
)

// Pair is a variable of a file.
type Pair struct{ Key, Value string }

var (
	envKey  = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	envBare = regexp.MustCompile(`^[A-Za-z0-9_./:@%+,=-]*$`) // values that need no quotes
)

// Parse parses a .env file as common libraries do: KEY=value lines, an optional export in front, # comments, 'literal'
// and "escaped" values (\n, \" and \\), both possibly over several lines. It expands nothing: $ is literal. If a key
// repeats, the last one counts. Its fault names the line. The libraries that were tried expand values or lose lines:
// docs/adr/0028-small-readers.md.
func Parse(text string) ([]Pair, error) {
	text = strings.TrimPrefix(strings.ReplaceAll(text, "\r\n", "\n"), "\ufeff")
	var out []Pair
	at := map[string]int{}
	for line := 1; text != ""; {
		all := text
		var head string
		head, text, _ = strings.Cut(text, "\n")
		begun, length := line, len(head)
		line++
		head = strings.TrimLeft(head, " \t\v\f\r")
		if strings.TrimSpace(head) == "" || head[0] == '#' {
			continue
		}
		bad := func(why, how string) error {
			return fault.New(fault.Invalid, "invalid_env", fmt.Sprintf("Line %d %s", begun, why), how)
		}
		key, rest, ok := strings.Cut(head, "=")
		if after, is := strings.CutPrefix(key, "export"); is && strings.TrimLeft(after, " \t") != after {
			key = after
		}
		key, rest = strings.TrimSpace(key), strings.TrimLeft(rest, " \t") // a quoted value may continue after trailing spaces
		if !ok {
			return nil, bad("has no =", "enter lines such as KEY=value")
		}
		if !envKey.MatchString(key) {
			return nil, bad("has an invalid name", "names contain letters, digits and underscores and don't begin with a digit")
		}
		value := rest
		if rest != "" && (rest[0] == '"' || rest[0] == '\'') {
			quote := rest[0]
			body := all[length-len(rest)+1:] // the value may continue on the next lines
			end := closing(body, quote)
			if end < 0 {
				return nil, bad("has an unclosed quote", "close it or use the other kind of quotes")
			}
			var tail string
			tail, text, _ = strings.Cut(body[end+1:], "\n")
			tail = strings.TrimSpace(tail)
			if tail != "" && tail[0] != '#' {
				return nil, bad("has text after the closing quote", "escape quotes inside the value with \\")
			}
			line += strings.Count(body[:end], "\n")
			value = body[:end]
			if quote == '"' {
				value = unescape(value)
			}
		} else {
			if i := strings.Index(" "+rest, " #"); i >= 0 {
				value = rest[:max(0, i-1)]
			}
			value = strings.TrimSpace(value)
		}
		if i, seen := at[key]; seen {
			out[i].Value = value
			continue
		}
		at[key] = len(out)
		out = append(out, Pair{key, value})
	}
	if len(out) == 0 {
		return nil, fault.New(fault.Invalid, "invalid_env", "No variables found", "enter lines such as KEY=value")
	}
	if len(out) > 1000 {
		return nil, fault.New(fault.Invalid, "invalid_env", "Too many variables", "at most 1,000 can be imported at once")
	}
	return out, nil
}

// closing returns the index of the quote that ends a value, or -1.
func closing(s string, quote byte) int {
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '\\' && quote == '"':
			i++
		case s[i] == quote:
			return i
		}
	}
	return -1
}

func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			b.WriteByte(s[i])
			continue
		}
		i++
		switch s[i] {
		case 'n':
			b.WriteByte('\n')
		case 'r':
			b.WriteByte('\r')
		case 't':
			b.WriteByte('\t')
		case '"', '\\', '$', '\'', '`':
			b.WriteByte(s[i])
		default: // unknown escape: keep both characters
			b.WriteString(`\` + string(s[i]))
		}
	}
	return b.String()
}

// envEscapes escapes double-quoted values, in which shells and many libraries expand $ and backquotes.
var envEscapes = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "$", `\$`, "`", "\\`", "\r", `\r`)

// Var is a variable to write.
type Var struct {
	Key, Value string
	Secret     bool
}

// Format writes variables so that Parse returns the same; shells do too, except for carriage returns. Secrets are
// written without a value.
func Format(vars []Var) string {
	var b strings.Builder
	for _, v := range vars {
		switch {
		case v.Secret:
			b.WriteString("# " + v.Key + " is secret\n")
		case envBare.MatchString(v.Value):
			b.WriteString(v.Key + "=" + v.Value + "\n")
		case !strings.ContainsAny(v.Value, "'\r"):
			b.WriteString(v.Key + "='" + v.Value + "'\n")
		default:
			b.WriteString(v.Key + `="` + envEscapes.Replace(v.Value) + "\"\n")
		}
	}
	return b.String()
}
