package shell

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"html/template"
	"maps"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"slipway/internal/platform/db"
	"slipway/internal/platform/text"
	"slipway/internal/tenant/domain"
)

func (d *Shell) funcs() template.FuncMap {
	all := template.FuncMap{
		"asset":     d.Assets.URL,
		"rest":      d.rest,
		"restFile":  d.restFile,
		"ago":       ago,
		"day":       day,
		"exact":     exact,
		"siteLabel": SiteLabel,
		"bytes":     BytesWord,
		"status":    status,
		"word":      Word,
		"took":      took,
		"icon":      d.icon,
		"dict":      dict,
		"short":     Short,
		"lines":     func(list []string) string { return strings.Join(list, "\n") },
		"plural":    text.Count,
		"variable":  func(name string) Variable { return Variable(name) },
		"list":      func(s ...string) []string { return s },
		"lower":     strings.ToLower,
		"join":      strings.Join,
		"hasPrefix": strings.HasPrefix,
		"device":    deviceWords,
		"text":      func(v any) string { return fmt.Sprint(v) },
		"percent":   Percent,
		"unicode":   domain.Unicode,
		"relative":  domain.Relative,
		"sentence":  sentence,
		"thousands": Thousands,
		"rough":     Rough,
		"stamp":     func(t db.Time) string { return t.Time().Format("2 Jan 15:04:05") },
		"clock":     func(t db.Time) string { return t.Time().Format("15:04:05") },
	}
	maps.Copy(all, d.Funcs)
	return all
}

// ago returns a relative time, with the exact time on hover and for scripts.
func ago(t db.Time) template.HTML {
	if t == 0 {
		return `<span class="soft">never</span>`
	}
	return template.HTML(fmt.Sprintf(`<time datetime="%s" title="%s" data-ago>%s</time>`, t, exact(t), Relative(time.Until(t.Time()))))
}

// day returns a date, with the exact time on hover.
func day(t db.Time) template.HTML {
	if t == 0 {
		return `<span class="soft">never</span>`
	}
	return template.HTML(fmt.Sprintf(`<time datetime="%s" title="%s">%s</time>`, t, exact(t), t.Time().Format("2 January 2006")))
}

func exact(t db.Time) string { return t.Time().Format("2 January 2006, 15:04:05 UTC") }

// Relative describes a duration in words; negative durations are in the past.
func Relative(d time.Duration) string {
	past := d < 0
	d = d.Abs()
	n, unit := 0, ""
	switch {
	case d < 5*time.Second:
		return "just now"
	case d < time.Minute:
		n, unit = int(d/time.Second), "second"
	case d < time.Hour:
		n, unit = int(d/time.Minute), "minute"
	case d < 24*time.Hour:
		n, unit = int(d/time.Hour), "hour"
	case d < 30*24*time.Hour:
		n, unit = int(d/(24*time.Hour)), "day"
	case d < 365*24*time.Hour:
		n, unit = int(d/(30*24*time.Hour)), "month"
	default:
		n, unit = int(d/(365*24*time.Hour)), "year"
	}
	text := text.Count(n, unit)
	if past {
		return text + " ago"
	}
	return "in " + text
}

// took describes how long something lasted.
func took(from, to db.Time) string {
	if from == 0 {
		return ""
	}
	if to == 0 {
		to = db.Now()
	}
	d := to.Sub(from).Round(time.Second)
	switch {
	case d < time.Second:
		return "under 1s"
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm %ds", d/time.Minute, d%time.Minute/time.Second)
	}
	return fmt.Sprintf("%dh %dm", d/time.Hour, d%time.Hour/time.Minute)
}

func BytesWord(n int64) string {
	f, unit := float64(n), "B"
	for _, u := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if f < 1000 { // 1005 MiB is displayed as 1.0 GiB, to avoid four digits
			break
		}
		f, unit = f/1024, u
	}
	if unit == "B" || f >= 100 {
		return fmt.Sprintf("%.0f %s", f, unit)
	}
	return fmt.Sprintf("%.1f %s", f, unit)
}

func Percent(part, whole int64) int {
	if whole <= 0 {
		return 0
	}
	return int(part * 100 / whole)
}

// words holds the display words and tones (ok, busy, wait, bad or off) of nouns' statuses.
var words = map[string]map[string][2]string{
	"site": {
		"pending": {"Queued", "wait"}, "provisioning": {"Deploying", "busy"}, "active": {"Live", "ok"},
		"error": {"Failed", "bad"}, "stopped": {"Stopped", "off"}, "crashed": {"Crashed", "bad"},
	},
	"deployment": {
		"pending": {"Queued", "wait"}, "building": {"Building", "busy"}, "deploying": {"Deploying", "busy"},
		"success": {"Ready", "ok"}, "failed": {"Failed", "bad"}, "canceled": {"Canceled", "off"},
		"skipped": {"Skipped", "off"},
	},
	"stage": {
		"pending": {"Queued", "off"},
		"running": {"Running", "busy"},
		"success": {"Done", "ok"},
		"failed":  {"Failed", "bad"},
		"skipped": {"Skipped", "off"},
	},
	"domain":      {"pending": {"Waiting for DNS", "wait"}, "active": {"Active", "ok"}, "failed": {"Failed", "bad"}},
	"certificate": {"pending": {"Issuing", "wait"}, "active": {"Valid", "ok"}, "failed": {"Failed", "bad"}, "expired": {"Expired", "bad"}},
	"record":      {"pending": {"Not found", "wait"}, "valid": {"Valid", "ok"}, "invalid": {"Invalid", "bad"}},
	"delivery":    {"pending": {"Pending", "wait"}, "success": {"Delivered", "ok"}, "failed": {"Failed", "bad"}},
	"node":        {"up": {"Up", "ok"}, "draining": {"Draining", "wait"}, "down": {"Down", "bad"}},
	"check":       {"ok": {"OK", "ok"}, "limited": {"Limited", "wait"}, "missing": {"Missing", "bad"}},
	"process": {
		"none":     {"Not running", "off"},
		"starting": {"Starting", "busy"},
		"running":  {"Running", "ok"},
		"sleeping": {"Sleeping", "off"},
		"stopped":  {"Stopped", "off"},
		"crashed":  {"Crashed", "bad"},
	},
	"database": {"creating": {"Creating", "busy"}, "active": {"Active", "ok"}, "error": {"Failed", "bad"}},
	"backup": {
		"pending":   {"Queued", "wait"},
		"running":   {"Running", "busy"},
		"completed": {"Not verified", "wait"},
		"verified":  {"Verified", "ok"},
		"damaged":   {"Can't be restored", "bad"},
		"failed":    {"Failed", "bad"},
	},
	"switch": {"on": {"Enabled", "ok"}, "off": {"Disabled", "off"}},
}

// Word returns a status's display word.
func Word(noun string, value any) string { return wordOf(noun, fmt.Sprint(value))[0] }

func wordOf(noun, value string) [2]string {
	if w, ok := words[noun][value]; ok {
		return w
	}
	return [2]string{value, "off"}
}

// status returns a status as a colored dot and a word.
func status(noun string, value any) template.HTML {
	w := wordOf(noun, fmt.Sprint(value))
	return template.HTML(`<span class="status ` + w[1] + `" data-test="status-` + template.HTMLEscapeString(fmt.Sprint(value)) + `">` +
		template.HTMLEscapeString(w[0]) + `</span>`)
}

// curl is the REST call equivalent to a page's action.
type curl struct {
	Method, Path, Command string

	Variables string // other variables to set besides the key, separated by spaces; usually empty
}

// Variable is a placeholder in a call for a variable of the reader's shell, such as a token unknown to the page.
type Variable string

// variableMark encloses variables' names in a call's JSON. It is random, so that no site name can contain it.
var variableMark = rand.Text()

func (v Variable) MarshalText() ([]byte, error) {
	return []byte(variableMark + string(v) + variableMark), nil
}

var variables = regexp.MustCompile(variableMark + "([A-Z][A-Z_]*)" + variableMark)

// rest returns a call. body, if given, is encoded as JSON.
func (d *Shell) rest(method, path string, body ...any) (curl, error) {
	var b strings.Builder
	b.WriteString("curl")
	if method != "GET" {
		b.WriteString(" -X " + method)
	}
	b.WriteString(" " + Quote(d.BaseURL+"/api/v1"+path) + " \\\n  -H \"Authorization: Bearer $SLIPWAY_KEY\"")
	if len(body) > 0 && body[0] != nil {
		var text strings.Builder
		enc := json.NewEncoder(&text)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(body[0]); err != nil {
			return curl{}, fmt.Errorf("show %s %s: %w", method, path, err)
		}
		b.WriteString(" \\\n  --json " + Quote(strings.TrimSpace(text.String())))
	}
	command, names := b.String(), []string(nil)
	for _, m := range variables.FindAllStringSubmatch(command, -1) {
		names = append(names, m[1])
	}
	return curl{
		Method: method, Path: "/api/v1" + path, Command: variables.ReplaceAllString(command, `'"$$$1"'`), Variables: strings.Join(names, " "),
	}, nil
}

// restFile returns a call whose body is a file.
func (d *Shell) restFile(path, kind, file string) (curl, error) {
	c, err := d.rest("POST", path)
	c.Command += " \\\n  -H " + Quote("Content-Type: "+kind) + " --data-binary " + Quote("@"+file)
	return c, err
}

// Quote quotes text as one word of a POSIX shell.
func Quote(s string) string {
	if s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789:/._-") == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// dict returns a map, for template parts with several arguments.
func dict(pairs ...any) (map[string]any, error) {
	if len(pairs)%2 != 0 {
		return nil, fmt.Errorf("dict: %d arguments", len(pairs))
	}
	m := map[string]any{}
	for i := 0; i < len(pairs); i += 2 {
		key, ok := pairs[i].(string)
		if !ok {
			return nil, fmt.Errorf("dict: %v is not a name", pairs[i])
		}
		m[key] = pairs[i+1]
	}
	return m, nil
}

// Short cuts text to n characters.
func Short(n int, s string) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n])
}

// deviceWords describes a User-Agent header in a few words.
func deviceWords(agent string) string {
	find := func(pairs ...string) string {
		for i := 0; i < len(pairs); i += 2 {
			if strings.Contains(agent, pairs[i]) {
				return pairs[i+1]
			}
		}
		return ""
	}
	browser := find("Edg/", "Edge", "OPR/", "Opera", "SamsungBrowser/", "Samsung Internet", "Firefox/", "Firefox",
		"FxiOS/", "Firefox", "CriOS/", "Chrome", "HeadlessChrome/", "Chrome", "Chromium/", "Chromium", "Chrome/",
		"Chrome", "Safari/", "Safari", "curl/", "curl")
	system := find("iPhone", "iPhone", "iPad", "iPad", "Android", "Android", "CrOS", "ChromeOS", "Windows", "Windows",
		"Mac OS X", "macOS", "Linux", "Linux")
	switch {
	case browser == "" && system == "":
		return "Unknown device"
	case browser == "":
		return system
	case system == "":
		return browser
	}
	return browser + " on " + system
}

// Clean removes invalid UTF-8 and control characters other than tab.
func Clean(text string) string {
	return strings.Map(func(r rune) rune {
		if r != '\t' && (r < ' ' || r >= 0x7f && r < 0xa0) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, string(utf8.RuneError)))
}
