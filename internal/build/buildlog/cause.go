package buildlog

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"slipway/internal/platform/text"
)

// Failure holds what is known about a failed build besides its output. Every field may be zero.
type Failure struct {
	ExitCode    int           // as a shell reports it
	OOM         bool          // the memory limit was hit
	Killed      string        // why Slipway killed it: timeout, disk limit, canceled or log flood; else ""
	Stage       string        // install or build
	MemoryLimit int64         // bytes
	DiskLimit   int64         // bytes
	TimeLimit   time.Duration // for the stage
	Manager     string        // npm, pnpm, yarn or bun
	Missing     string        // the missing output folder after a successful build
	Found       []string      // existing folders that may be the output
	Link        string        // target of Missing, if it is a link
	Conflict    string        // a manifest or lock file with conflict markers
	Unset       string        // a variable that the registry's settings use but that isn't set
	// Windows reports whether a script of the project has Windows line endings. Optional.
	Windows func(name string) bool
}

// Cause returns one sentence with the likely cause of the failure and, if known, the remedy. It contains text of the
// build, so it is as trustworthy as the build.
func (l *Log) Cause(f Failure) string {
	l.mu.Lock()
	lines := l.recent.all()
	l.mu.Unlock()
	if s := killed(f); s != "" {
		return s
	}
	if f.Missing != "" && f.ExitCode == 0 {
		return missing(f)
	}
	if f.Conflict != "" {
		return f.Conflict + " contains merge conflict markers (<<<<<<<): resolve it and commit the file"
	}
	if s := windows(f, lines); s != "" {
		return s
	}
	if f.Unset != "" && slices.ContainsFunc(lines, denied().MatchString) {
		return "The registry refused access, and its settings use the environment variable " + f.Unset +
			", which is not set: add it to the site, for the build"
	}
	for _, c := range causes {
		for _, line := range lines {
			if c.failing && level(line) == "warn" {
				continue
			}
			if m := c.pattern().FindStringSubmatchIndex(line); m != nil {
				return string(c.pattern().ExpandString(nil, expandManager(c.sentence, f), line, m))
			}
		}
	}
	return l.unknown(f)
}

// denied matches messages of package managers about private packages.
var denied = lazy(`\b(E401|E403|E404|ENEEDAUTH|401 Unauthorized|403 Forbidden|404 Not Found)\b|ERR_PNPM_FETCH_40\d|Failed to replace env`)

// absent matches messages of shells that a script can't be run.
var absent = lazy(
	`(?:sh|bash): (?:line )?(?:\d+: )?(\S*/\S+): (?:not found|cannot execute: required file not found|No such file or directory|` +
		`bad interpreter)|spawn (\S*/\S+) ENOENT|^(\S*/\S+): no such file or directory$`,
)

// windows returns the cause if a shell reports an existing script as missing: with Windows line endings, the
// interpreter's name ends in a carriage return.
func windows(f Failure, lines []string) string {
	if f.Windows == nil {
		return ""
	}
	for _, line := range lines {
		m := absent().FindStringSubmatch(line)
		if m == nil {
			continue
		}
		if name := cmp.Or(m[1], m[2], m[3]); f.Windows(name) {
			return "Script " + name + " has Windows line endings (CRLF): save it with LF, and add \"*.sh text eol=lf\" to .gitattributes"
		}
	}
	return ""
}

// killed returns the cause that Slipway itself observed, which is more reliable than the output.
func killed(f Failure) string {
	switch {
	case f.OOM || f.Killed == "out of memory":
		return "Out of memory" + limit(
			bound(f.MemoryLimit),
		) + "; reduce the memory that the build uses, for example with fewer workers, or ask the operator to raise --build-memory"
	case f.Killed == "timeout":
		s := "The " + stage(f) + " timed out"
		if f.TimeLimit > 0 {
			s += limit(f.TimeLimit.Round(time.Second).String())
		}
		return s + "; a command that waits for input or watches files never ends by itself"
	case strings.HasPrefix(f.Killed, "disk"):
		return "Disk full" + limit(bound(f.DiskLimit)) +
			"; look for large dependencies, caches or generated files, or ask the operator to raise --build-disk"
	case f.Killed == "log flood":
		return "The " + stage(f) + " was stopped because it printed far more than the log limit; look for a loop that prints"
	case f.Killed == "canceled":
		return "The " + stage(f) + " was canceled"
	case f.Killed != "":
		return "The " + stage(f) + " was ended: " + f.Killed
	}
	return ""
}

func limit(s string) string {
	if s == "" {
		return ""
	}
	return ": the limit is " + s
}

func missing(f Failure) string {
	s := "Output folder " + f.Missing + " is missing"
	if f.Link != "" {
		return "Output folder " + f.Missing + " is a link to " + f.Link +
			", and links are not followed there: set the output folder to where the files are, or let the build write them there"
	}
	if len(f.Found) == 0 {
		return s + "; the build wrote no folder that looks like an output folder: set it in the build settings"
	}
	found := f.Found
	more := ""
	if len(found) > 5 {
		found, more = found[:5], " and more"
	}
	return s + "; found: " + strings.Join(found, ", ") + more
}

// unknown returns a sentence if nothing in the output is recognized.
func (l *Log) unknown(f Failure) string {
	switch f.ExitCode {
	case 0:
		return "The " + stage(f) + " failed"
	case 126:
		return "The " + stage(f) + " command is not executable: set its executable bit with git update-index --chmod=+x"
	case 127:
		return "The " + stage(f) + " command was not found: add the tool that it needs to the project's dependencies"
	case 137:
		return "A process of the " + stage(f) + " was killed, most likely for lack of memory" + limit(bound(f.MemoryLimit))
	case 133, 134:
		return "A process of the " + stage(f) + " crashed; Node.js does so when memory or threads run out" + limit(bound(f.MemoryLimit))
	case 13:
		return "Node.js ended while the " + stage(
			f,
		) + " was still waiting: for input (builds are non-interactive), or for a promise that never settles"
	case 153:
		return "The " + stage(f) + " wrote a file that is larger than its disk limit" + limit(bound(f.DiskLimit))
	case 139:
		return "A process of the " + stage(f) + " crashed (segmentation fault)"
	}
	lines, heading := l.Excerpt(20), false
	for _, line := range lines {
		whole := strings.TrimSpace(line)
		switch failing := level(whole) == "error"; {
		case failing && says(whole):
			return whole
		case failing:
			heading = strings.HasSuffix(whole, ":") // it introduces the lines after the stack frames
		case heading && whole != "" && whole[0] == line[0]:
			return whole
		}
	}
	for i := len(lines) - 1; i >= 0; i-- {
		last := strings.TrimSpace(lines[i])
		if last != "" && level(last) != "warn" && !announces().MatchString(last) {
			return "Its output ends with: " + text.Clip(last, 300)
		}
	}
	return "Its output does not say why"
}

// announces matches what package managers print before they run a script.
var announces = lazy(`^(?:[>$] |yarn run v\d)`)

func stage(f Failure) string {
	if f.Stage == "" {
		return "build"
	}
	return f.Stage
}

// bound formats a limit; "" if there is none.
func bound(n int64) string {
	if n <= 0 {
		return ""
	}
	return text.Size(n)
}

// expandManager inserts the project's package manager and memory limit into a sentence.
func expandManager(s string, f Failure) string {
	m := f.Manager
	if m == "" {
		m = "npm"
	}
	memory := "below the build's memory limit"
	if b := bound(f.MemoryLimit); b != "" {
		memory += " of " + b
	}
	return strings.NewReplacer("{manager}", m, "{memory}", memory).Replace(s)
}

// all returns all remembered lines: those of the blocks, then the last ones.
func (m *memory) all() (lines []string) {
	for _, b := range m.blocks {
		lines = append(lines, b.lines...)
	}
	return append(lines, m.last(tailLines)...)
}

// failedIn matches summaries of bundlers and the first line of Python's tracebacks.
var failedIn = lazy(`^\W*build failed in [\d.]+ ?m?s$|^traceback \(most recent call last\):$`)

// says reports whether an error line says more than that an error occurred.
func says(line string) bool {
	line = strings.ToLower(line)
	if failedIn().MatchString(line) {
		return false
	}
	for _, empty := range []string{"error during build", "error:", "[error]", "error"} {
		line = strings.ReplaceAll(line, empty, "")
	}
	return strings.Trim(line, " :[]") != ""
}
