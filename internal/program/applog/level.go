package applog

import (
	"encoding/json"
	"slices"
	"strings"

	"slipway/internal/platform/lazyregexp"
)

// levels are the words of loggers for how serious a line is, and ours.
var levels = map[string]string{
	"emerg": "error", "emergency": "error", "alert": "error", "crit": "error", "critical": "error", "fatal": "error", "panic": "error",
	"dpanic": "error", "severe": "error", "err": "error", "error": "error",
	"warn": "warn", "warning": "warn",
	"notice": "info", "info": "info", "information": "info", "http": "info", "log": "info",
	"debug": "debug", "verbose": "debug", "silly": "debug", "trace": "debug",
}

// levelHead is how many bytes of a line may say its level.
const levelHead = 400

var (
	escapes = lazyregexp.New(`\x1b\[[0-9;]*m`)
	// notLevel is what may be before a level: dates, times, numbers, the name of a program in brackets.
	notLevel = lazyregexp.New(`^(?:[\s\-|*•>]+|\[?\d[\d:./,TZ+-]*\]?|[AP]M\b|\[\d{4}-[^\]]*\]|\[[A-Z][a-z]\w*\])`)
	// beforeText is a level where a line's text begins: in brackets, before a colon, or in capitals. Monolog puts a channel before it.
	beforeText = lazyregexp.New(`^(?:[\w-]{1,40}\.)?(?:[\[(<]([A-Za-z]+)[\])>]|([A-Za-z]+)\s*:|([A-Z]{3,})(?:$|[\s\]|(]))`)
	logfmt     = lazyregexp.New(`(?:^|\s)(?:level|lvl|severity)=["']?([A-Za-z]+)`)
	// raised matches the first line of an exception, or what a runtime or tool says of an error.
	raised = lazyregexp.New(`^(?:[\w.\\]*(?:Error|Exception)(?: \[\w+\])?:|PHP (?:Fatal|Parse|Recoverable fatal) error:|` +
		`Uncaught |Unhandled |panic: |fatal error: |Traceback \(|npm (?:ERR!|error) |⨯ )`)
	warned = lazyregexp.New(`^(?:PHP (?:Warning|Deprecated|Notice):|npm (?:WARN|warn) |\(node:\d+\) |⚠)`)
)

// levelOf returns how serious a line is: what its logger says, and not what it is about. Of a line that doesn't say so, those of
// the error stream are warnings.
func levelOf(stream, text string) string {
	if stream == "system" {
		return levelOfOurs(text)
	}
	if level := said(text); level != "" {
		return level
	}
	if stream == "stderr" {
		return "warn"
	}
	return "info"
}

// said returns the level that a line says, or "".
func said(text string) string {
	if strings.HasPrefix(text, "{") {
		return saidByJSON(text)
	}
	head := escapes.ReplaceAllString(text[:min(len(text), levelHead)], "")
	if m := logfmt.FindStringSubmatch(head); m != nil {
		if level := levels[strings.ToLower(m[1])]; level != "" {
			return level
		}
	}
	for range 12 { // parts of a prefix
		n := len(notLevel.FindString(head))
		if n == 0 {
			break
		}
		head = head[n:]
	}
	switch {
	case raised.MatchString(head):
		return "error"
	case warned.MatchString(head):
		return "warn"
	}
	if m := beforeText.FindStringSubmatch(head); m != nil {
		return levels[strings.ToLower(m[1]+m[2]+m[3])]
	}
	return ""
}

// saidByJSON returns the level of a line of JSON, which may have been cut: that of pino, bunyan, winston, zap, Monolog and others.
func saidByJSON(text string) (level string) {
	d := json.NewDecoder(strings.NewReader(text))
	if _, err := d.Token(); err != nil {
		return ""
	}
	for {
		key, err := d.Token()
		name, ok := key.(string)
		if err != nil || !ok {
			return level
		}
		var value json.RawMessage
		if d.Decode(&value) != nil {
			return level
		}
		switch name {
		case "level", "level_name", "severity", "lvl", "log.level", "@level":
		default:
			continue
		}
		var word string
		var number float64
		switch {
		case json.Unmarshal(value, &word) == nil:
			if x := levels[strings.ToLower(word)]; x != "" {
				return x // a name says more than a number
			}
		case json.Unmarshal(value, &number) == nil:
			level = numbered(number)
		}
	}
}

// numbered returns the level of a number: pino and bunyan count from 10 to 60, Monolog from 100 to 600.
func numbered(n float64) string {
	switch {
	case n < 10:
		return ""
	case n >= 400 || n >= 50 && n < 100:
		return "error"
	case n >= 300 || n >= 40 && n < 100:
		return "warn"
	case n >= 200 || n >= 30 && n < 100:
		return "info"
	}
	return "debug"
}

// levelOfOurs returns the level of what the service says.
func levelOfOurs(text string) string {
	head := strings.ToLower(text[:min(len(text), 120)])
	has := func(words ...string) bool {
		return slices.ContainsFunc(words, func(word string) bool { return strings.Contains(head, word) })
	}
	switch {
	case has("error", "fatal", "uncaught", "panic"):
		return "error"
	case has("warn"):
		return "warn"
	case strings.HasPrefix(head, "the application "), strings.HasPrefix(head, "the process exited"), has(" was answered with 50"):
		return "warn"
	}
	return "info"
}
