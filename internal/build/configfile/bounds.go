package configfile

import (
	"fmt"
	"strings"

	"github.com/BurntSushi/toml"
)

// Limits of a configuration file. They are checked on the raw text before parsing, because a parser's memory grows with
// depth times keys: 500 KB of TOML nested 990 deep take gigabytes.
const (
	MaxConfig  = 1 << 20 // bytes
	maxNesting = 16      // nested tables and arrays of TOML
	MaxKeys    = 8192    // keys of one TOML file

	// JSON may nest deeper, because only the requested members are decoded, one level at a time.
	maxJSONNesting = 100
	maxJSONKeys    = 1 << 16
)

func errNesting(n int) error { return fmt.Errorf("nested deeper than %d levels", n) }

func errKeys(n int) error { return fmt.Errorf("more than %d keys", n) }

// CheckJSON checks JSON text against the limits in one pass, without allocating. The text may be invalid: a decoder
// that refuses it later can't exceed the limits before.
func CheckJSON(src string) error {
	depth, keys := 0, 0
	for i := 0; i < len(src); i++ {
		switch src[i] {
		case '"':
			for i++; i < len(src) && src[i] != '"'; i++ {
				if src[i] == '\\' {
					i++
				}
			}
		case '{', '[':
			depth++
			if depth > maxJSONNesting {
				return errNesting(maxJSONNesting)
			}
		case '}', ']':
			depth--
		case ':':
			keys++
			if keys > maxJSONKeys {
				return errKeys(maxJSONKeys)
			}
		}
	}
	return nil
}

// DecodeTOML decodes TOML after CheckTOML.
func DecodeTOML(src string, into any) (toml.MetaData, error) {
	if err := CheckTOML(src); err != nil {
		return toml.MetaData{}, err
	}
	return toml.Decode(src, into)
}

// CheckTOML is CheckJSON for TOML, where the parts of a table's name and of a dotted key nest like brackets.
func CheckTOML(src string) error {
	var (
		table int   // levels of the current table header
		open  []int // levels of the surrounding keys, one entry per open bracket
		sum   int   // of open
		key   = 1   // levels of the current key
		keys  int
		fresh = true // only blanks so far on this line
		head  bool   // inside a table header
	)
	for i := 0; i < len(src); i++ {
		c := src[i]
		blank := c == ' ' || c == '\t' || c == '\r' || c == '\n'
		switch c {
		case '#':
			if n := strings.IndexByte(src[i:], '\n'); n >= 0 {
				i += n - 1
			} else {
				i = len(src)
			}
		case '"', '\'':
			i = tomlString(src, i)
		case '\n':
			if len(open) == 0 {
				key, head = 1, false
			}
		case '.':
			key++
		case ',':
			key = 1
		case '=':
			keys++
			if keys > MaxKeys {
				return errKeys(MaxKeys)
			}
		case '[', '{':
			if fresh && len(open) == 0 && c == '[' {
				head, table, key = true, 0, 1
				break
			}
			if head { // the second bracket of [[name]]
				break
			}
			open = append(open, key)
			sum += key
			key = 1
		case ']', '}':
			if head {
				table, key, head = key, 1, false
				keys++
				if keys > MaxKeys {
					return errKeys(MaxKeys)
				}
				if strings.HasPrefix(src[i:], "]]") {
					i++
				}
				break
			}
			if n := len(open); n > 0 {
				key, sum, open = open[n-1], sum-open[n-1], open[:n-1]
			}
		}
		// A number or a date contains a dot, so a value may count one level too many.
		if table+sum+key-1 > maxNesting || key > maxNesting {
			return errNesting(maxNesting)
		}
		fresh = c == '\n' && len(open) == 0 || fresh && blank
	}
	return nil
}

// tomlString returns the index of the last byte of the string that begins at i.
func tomlString(src string, i int) int {
	quote := src[i : i+1]
	if long := strings.Repeat(quote, 3); strings.HasPrefix(src[i:], long) {
		for i += 3; i < len(src); i++ {
			switch {
			case src[i] == '\\' && quote == `"`:
				i++
			case strings.HasPrefix(src[i:], long):
				i += 2
				for i+1 < len(src) && src[i+1] == quote[0] { // up to two quotes may precede the closing ones
					i++
				}
				return i
			}
		}
		return i
	}
	for i++; i < len(src) && src[i] != quote[0] && src[i] != '\n'; i++ {
		if src[i] == '\\' && quote == `"` {
			i++
		}
	}
	return i
}

// MaxPatterns caps the folder patterns of a workspace.
const MaxPatterns = 50
