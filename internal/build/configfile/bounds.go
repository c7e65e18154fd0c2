package configfile

import (
	"fmt"
	"strings"

	"github.com/BurntSushi/toml"
)

// The bounds of a configuration file that is handed to a parser. They are checked on the
// raw text first, because what a parser allocates grows with depth times keys: TOML of
// 500 KB that nests 990 deep takes gigabytes.
const (
	MaxConfig  = 1 << 20 // bytes
	maxNesting = 16      // tables and arrays of TOML inside each other
	MaxKeys    = 8192    // keys of one TOML file

	// Of JSON only the members that are asked for are decoded, a level at a time.
	maxJSONNesting = 100
	maxJSONKeys    = 1 << 16
)

func errNesting(n int) error { return fmt.Errorf("nested deeper than %d levels", n) }

func errKeys(n int) error { return fmt.Errorf("more than %d keys", n) }

// CheckJSON holds JSON text to the bounds, in one pass and without memory of its own. It
// need not be valid: a decoder that refuses it later has not come past the bounds before.
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

// DecodeTOML decodes what checkTOML lets through.
func DecodeTOML(src string, into any) (toml.MetaData, error) {
	if err := CheckTOML(src); err != nil {
		return toml.MetaData{}, err
	}
	return toml.Decode(src, into)
}

// CheckTOML is checkJSON for TOML, where the parts of a table's name and of a dotted key
// nest as well as brackets do.
func CheckTOML(src string) error {
	var (
		table int   // levels of the table that the last header opened
		open  []int // levels of the keys around us, one entry per open bracket
		sum   int   // of open
		key   = 1   // levels of the key that is being read
		keys  int
		fresh = true // nothing but blanks on this line so far
		head  bool   // inside a table's header
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
		// A number or a date has one dot, so a value may seem one level deeper than it is.
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
				for i+1 < len(src) && src[i+1] == quote[0] { // up to two quotes may stand before the end
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

// MaxPatterns is the most patterns of folders in one workspace.
const MaxPatterns = 50
