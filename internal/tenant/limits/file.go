package limits

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"
)

// Parse reads the operator's limits from TOML:
//
//	[defaults]
//	sites = 50
//	deployments.pending = 20
//	storage.bytes = "50 GiB"
//
//	[users."ada@example.com"]
//	sites = "unlimited"
//
//	[teams.acme]
//	members = 50
//
// It returns an error in words for unknown limits and tables, and for values other than non-negative integers,
// "unlimited", or sizes for limits in bytes.
func Parse(text string) (Settings, error) {
	var file map[string]any
	if _, err := toml.Decode(text, &file); err != nil {
		return Settings{}, err
	}
	out := Settings{Users: map[string]map[Name]int64{}, Teams: map[string]map[Name]int64{}}
	for name, v := range file {
		table, ok := v.(map[string]any)
		if !ok || name != "defaults" && name != "users" && name != "teams" {
			return out, fmt.Errorf("unknown entry %q: there are [defaults], [users.\"ADDRESS\"] and [teams.SLUG]", name)
		}
		if name == "defaults" {
			var err error
			if out.Defaults, err = readLimits("defaults", table); err != nil {
				return out, err
			}
			continue
		}
		if name == "teams" {
			for slug, v := range table {
				table, ok := v.(map[string]any)
				if !ok {
					return out, fmt.Errorf("unknown entry teams.%s: write exceptions in [teams.SLUG]", slug)
				}
				limits, err := readLimits("teams."+slug, table)
				if err != nil {
					return out, err
				}
				out.Teams[strings.ToLower(slug)] = limits
			}
			continue
		}
		for email, v := range table {
			table, ok := v.(map[string]any)
			if !ok || !strings.Contains(email, "@") {
				return out, fmt.Errorf(
					"unknown entry users.%s: write exceptions in [users.\"ADDRESS\"], with the address in quotation marks",
					email,
				)
			}
			limits, err := readLimits("users."+email, table)
			if err != nil {
				return out, err
			}
			out.Users[strings.ToLower(strings.TrimSpace(email))] = limits
		}
	}
	return out, nil
}

// readLimits reads one table. Names with a dot may be TOML dotted keys.
func readLimits(where string, table map[string]any) (map[Name]int64, error) {
	out := map[Name]int64{}
	var read func(prefix string, table map[string]any) error
	read = func(prefix string, table map[string]any) error {
		for k, v := range table {
			name := Name(prefix + k)
			if inner, ok := v.(map[string]any); ok {
				if err := read(string(name)+".", inner); err != nil {
					return err
				}
				continue
			}
			if _, known := kinds[name]; !known {
				return fmt.Errorf("%s: unknown limit %q; limits are %s", where, name, names())
			}
			n, ok := v.(int64)
			if text, is := v.(string); is {
				n, ok = readAmount(name, text)
			}
			if !ok || n < 0 {
				size := ""
				if name.Bytes() {
					size = ", a size such as \"50 GiB\""
				}
				return fmt.Errorf("%s: %s = %v: a limit is a whole number of at least 0%s, or \"unlimited\"", where, name, v, size)
			}
			if err := name.Check(n); err != nil {
				return fmt.Errorf("%s: %w", where, err)
			}
			out[name] = n
		}
		return nil
	}
	return out, read("", table)
}

var sizeText = regexp.MustCompile(`^([0-9]{1,9}) ?([KMGT])iB$`)

// readAmount parses a limit written as a string.
func readAmount(name Name, text string) (int64, bool) {
	if text == "unlimited" {
		return Unlimited, true
	}
	m := sizeText.FindStringSubmatch(text)
	if m == nil || !name.Bytes() {
		return 0, false
	}
	n, err := strconv.ParseInt(m[1], 10, 64)
	shift := 10 * (1 + strings.Index("KMGT", m[2]))
	if err != nil || n > math.MaxInt64>>shift {
		return 0, false
	}
	return n << shift, true
}
