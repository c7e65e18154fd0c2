package buildlog

import (
	"path"
	"regexp"
	"strings"

	"slipway/internal/platform/text"
)

// startCause is a common failure of starting programs. say makes a sentence from the match, or returns "" if the match
// explains nothing.
type startCause struct {
	pattern func() *regexp.Regexp
	say     func(m []string, line string, dir string) string
}

// starting returns a startCause whose sentence has ${1} for the match's first group, as in causes.
func starting(pattern, sentence string) startCause {
	re := lazy(pattern)
	return startCause{re, func(_ []string, line, _ string) string {
		return string(re().ExpandString(nil, sentence, line, re().FindStringSubmatchIndex(line)))
	}}
}

const noFolder = "It writes to a folder of its release, which is read-only: keep what it writes in a folder, and name that in storage " +
	"under [run] in slipway.toml, or in run.storage of the site"

// startCauses is tried in order, as causes is.
var startCauses = []startCause{
	{lazy(`\bEROFS\b|[Rr]ead-only file system|` +
		`\bENOENT: no such file or directory, mkdir '|` + // Node.js's message of a recursive mkdir on a read-only file system
		`\bEACCES: permission denied, (?:mkdir|open|unlink|rename|copyfile|mkdtemp|rmdir|symlink|chmod)\b|` +
		`Permission denied: '/|[Cc]annot create directory|[Ff]ailed to open stream: Permission denied`), writes},
	starting(`SQLITE_CANTOPEN|SQLITE_READONLY|attempt to write a readonly database|unable to open (?:the )?database file`,
		"It can't write its SQLite database, because a release is read-only: keep the file in a folder, and name that in storage under "+
			"[run] in slipway.toml, or in run.storage of the site"),
	starting(`JavaScript heap out of memory|Reached heap limit`, "Node.js ran out of memory: raise the site's memory limit (run.memoryMiB)"),
	starting(`\bENOSPC\b|[Nn]o space left on device`, "The disk that it may use is full: keep what it writes in storage, or write less"),
	starting(`\blisten (?:EACCES|EADDRINUSE|EADDRNOTAVAIL|EPERM)\b.*?(\S*:\d+|/\S+)$`,
		"It can't listen on ${1}: it must listen on the port that the variable PORT names, at 127.0.0.1 or all addresses"),
	{lazy(`Cannot find (?:module|package) ['"]([^'"]+)['"]|ModuleNotFoundError: No module named '([^']+)'`), module},
	starting(`did not initialize yet\. Please run "prisma generate"`,
		"Prisma's client was not generated: call prisma generate in the build script or in postinstall, with prisma in the dependencies"),
	starting(`Could not find a production build in the '([^']+)' directory`,
		"There is no build in ${1}: the build command must run next build"),
	starting(`Environment variable not found: (\w+)`, envUnset),
	starting(`\b([A-Z][A-Z0-9]*_[A-Z0-9_]+|[A-Z]{4,})["'\x60]? (?:environment variable )?(?:is|must be) `+
		`(?:not (?:set|defined)|undefined|missing|required|set|defined|provided)\b`, envUnset),
	starting(`(?i:missing|required|undefined|invalid|unset|not set|must set|no)\b[^A-Z]*(?i:env(?:ironment)?[ _-]?var\w*)[^A-Z]*`+
		`\b([A-Z][A-Z0-9_]{2,})\b`, envUnset),
	starting(`(?i:env(?:ironment)?[ _-]variables?) ["'\x60]?([A-Z][A-Z0-9_]{2,})["'\x60]? (?i:is|was) `, envUnset),
	starting(`process\.env\.(\w+) (?:is|must)\b`, envUnset),
	starting(`\bECONNREFUSED\b.*?(?:127\.0\.0\.1|::1|localhost):5432`, nothingListens("PostgreSQL")),
	starting(`\bECONNREFUSED\b.*?(?:127\.0\.0\.1|::1|localhost):3306`, nothingListens("MySQL")),
	starting(`\bECONNREFUSED\b.*?(?:127\.0\.0\.1|::1|localhost):27017`, nothingListens("MongoDB")),
	starting(`\bECONNREFUSED\b.*?(?:127\.0\.0\.1|::1|localhost):6379`, nothingListens("Redis")),
	starting(`\bECONNREFUSED\b.*?((?:127\.0\.0\.1|::1|localhost):\d+)`, nothingListens("${1}")),
	starting(`\b(?:ENOTFOUND|EAI_AGAIN) ([\w.-]+\w)`,
		"Host ${1} does not exist, is not public, or can't be looked up right now: check its name in the variables"),
	starting(`\b(?:ECONNREFUSED|ENETUNREACH|EHOSTUNREACH|ETIMEDOUT) ([\w:][\w.:-]*\w)`,
		"No connection to ${1}: programs reach public hosts on ports 80 and 443, and on those in run.ports, by name"),
	starting(`(?:sh|bash): (?:line )?(?:\d+: )?(\S+): (?:command )?not found|spawn (\S+) ENOENT|^([^\s:]+): command not found$`,
		"Command ${1}${2}${3} was not found: add the package that has it to dependencies, not devDependencies, or set another start command"),
	starting(`Missing script:? "?([\w:.-]+)"?`, `package.json has no script "${1}": add it, or set another start command`),
	starting(`ERR_DLOPEN_FAILED|invalid ELF header|version .GLIBC\S+ not found`,
		"A compiled dependency is not for this server: don't commit node_modules, and let the build install it"),
	starting(`PHP (?:Fatal|Parse) error: +(.{1,300})`, "PHP error: ${1}"),
}

const envUnset = "The environment variable ${1} is not set: add it to the site, for the runtime"

func nothingListens(what string) string {
	return "It connects to " + what + " on its own machine, where nothing listens: use a database of the site, or set the address of " +
		"another in its variables"
}

// quoted matches the path in a line about a file.
var quoted = lazy(`['"‘]([^'"’]*/[^'"’]*|\.?[\w.-]+)['"’]|\((/[^)]+)\)|(?:open|mkdir|create) (\S+?):`)

// writes returns the cause for a line that refuses to write to a folder.
func writes(_ []string, line, dir string) string {
	m := quoted().FindStringSubmatch(line)
	if m == nil {
		return noFolder
	}
	at := path.Clean(m[1] + m[2] + m[3])
	for _, top := range []string{"/app", "/build/repo"} {
		if rest, ok := strings.CutPrefix(at+"/", path.Join(top, dir)+"/"); ok {
			at = path.Clean("./" + rest)
			break
		}
	}
	if path.IsAbs(at) || strings.HasPrefix(at, "..") {
		return "It can't write to " + at + ", which is not its own: let it write to a folder of the project that storage names, or to /tmp"
	}
	if path.Ext(at) != "" && !strings.HasPrefix(path.Base(at), ".") { // a file
		at = path.Dir(at)
	}
	if at == "." {
		return noFolder
	}
	return "It writes to " + at + `, and a release is read-only: add storage = ["` + at + `"] under [run] in slipway.toml, ` +
		"or set run.storage of the site"
}

// module returns the cause for a missing module.
func module(m []string, _, _ string) string {
	name := m[1] + m[2]
	if path.IsAbs(name) || strings.HasPrefix(name, ".") {
		return "File " + name + " is not in the release: the build must write it, or the start command must name another file"
	}
	return "Package " + name + " is not in the release: move it from devDependencies to dependencies, or set dev_dependencies = true " +
		"under [run] in slipway.toml"
}

// StartCause returns one sentence with the likely cause why a program didn't start or answers with errors, from the
// last lines that it printed; "" if they don't say. dir is the project's folder. The sentence is as trustworthy as the
// program.
func StartCause(lines []string, dir string) string {
	for _, c := range startCauses {
		for _, line := range lines {
			if m := c.pattern().FindStringSubmatch(line); m != nil {
				if s := c.say(m, line, dir); s != "" {
					return text.Clip(s, clipLine)
				}
			}
		}
	}
	last := ""
	for _, line := range lines {
		whole := strings.TrimSpace(line)
		if level(whole) == "error" && says(whole) && !noise().MatchString(whole) {
			last = whole
		}
	}
	if last == "" {
		return ""
	}
	return "Its last error: " + text.Clip(last, 300)
}
