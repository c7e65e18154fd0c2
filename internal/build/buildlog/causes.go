package buildlog

import (
	"regexp"
	"sync"
)

// lazy returns an expression that is compiled at its first use: this program is also the helper in every sandbox, where
// it must start fast and small.
func lazy(text string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })
}

// cause is a common failure of builds. In its sentence, ${1} is the match's first group, {manager} the package manager,
// and {memory} the memory limit.
type cause struct {
	pattern  func() *regexp.Regexp
	sentence string
	failing  bool // ignore warnings: the tool continued
}

func when(pattern, sentence string) cause { return cause{pattern: lazy(pattern), sentence: sentence} }

func failing(pattern, sentence string) cause {
	return cause{pattern: lazy(pattern), sentence: sentence, failing: true}
}

// causes is tried in order; the first whose pattern matches any remembered line is the answer. Exact codes come first,
// then unambiguous messages, then guesses.
var causes = []cause{
	// Limits of the machine, as programs report them.
	when(`JavaScript heap out of memory|Reached heap limit`,
		"Node.js ran out of memory: set NODE_OPTIONS=--max-old-space-size to more megabytes, {memory}"),
	when(`\bENOSPC\b.*(file watchers|watch )`, "The build watches files, which can't work here: use the command that builds once"),
	when(`\bENOSPC\b|[Nn]o space left on device|\bEDQUOT\b`, "Disk full: look for large dependencies, caches or generated files"),
	when(`\bEMFILE\b|[Tt]oo many open files`, "Too many files are open at once: let the build use fewer workers"),
	when(`\bEAGAIN\b.*(fork|spawn)|(fork|spawn).*\bEAGAIN\b|fork: .*[Rr]esource temporarily unavailable|can't start new thread`,
		"The build started too many processes: let it use fewer workers"),
	when(
		`\bERR_WORKER_OUT_OF_MEMORY\b|\bMemoryError\b|[Cc]annot allocate memory|RangeError: Array buffer allocation failed`,
		"Out of memory: let the build use fewer workers, or raise its memory limit",
	),

	when(`\bEFBIG\b|[Ff]ile too large|File size limit exceeded|SIGXFSZ`, "The build wrote a file that is larger than its disk limit"),

	// Prompts that nobody can answer.
	when(`npx canceled due to missing packages and no YES option: \["([^"]+?)(?:@[^"@]*)?"`,
		"npx would have to download ${1}: add it to devDependencies, or call npx with --yes"),
	when(
		`EOFError: EOF when reading a line|ExitPromptError|User force closed the prompt|[Pp]rompt couldn't be rendered|`+
			`stdin is not a (tty|TTY)|the input device is not a TTY|Raw mode is not supported|ERR_USE_AFTER_CLOSE.*readline|`+
			`Detected unsettled top-level await`,
		"The build is waiting for input, and builds are non-interactive: pass the answer as an option, such as --yes, or as an "+
			"environment variable",
	),

	// Lock files.
	when(`npm (?:error|ERR!) Missing: (\S+) from lock file`,
		"package-lock.json and package.json disagree, ${1} is missing from the lock file: run npm install and commit it"),
	when(`npm (?:error|ERR!) Invalid: lock file's (\S+) does not satisfy (\S+)`,
		"package-lock.json and package.json disagree, the lock file has ${1} where ${2} is asked for: run npm install and commit it"),
	when(`YN0047: .*autofix|Merge conflict (?:detected )?in (?:yarn\.lock|\S+lock\S*)`,
		"The lock file contains merge conflict markers: resolve it and commit the lock file"),
	when("`?npm ci`? can only install packages when your package(-lock)?\\.json",
		"package-lock.json and package.json disagree: run npm install and commit the lock file"),
	when("The `?npm ci`? command can only install with an existing package-lock\\.json",
		"package-lock.json is missing or damaged: run npm install and commit the lock file"),
	when(`ERR_PNPM_OUTDATED_LOCKFILE|ERR_PNPM_LOCKFILE_CONFIG_MISMATCH`,
		"pnpm-lock.yaml and package.json disagree: run pnpm install and commit the lock file"),
	when(`ERR_PNPM_NO_LOCKFILE`, "There is no pnpm-lock.yaml: run pnpm install and commit the lock file"),
	when(`ERR_PNPM_LOCKFILE_BREAKING_CHANGE|ERR_PNPM_BROKEN_LOCKFILE`,
		"This version of pnpm can't read pnpm-lock.yaml: set the right version in packageManager in package.json, "+
			"or update the lock file"),
	when("Your lockfile needs to be updated|The lockfile would have been (modified|created) by this install|YN0028",
		"yarn.lock and package.json disagree: run yarn install and commit the lock file"),
	when(`lockfile had changes, but lockfile is frozen`, "bun.lock and package.json disagree: run bun install and commit the lock file"),
	when(`npm (error|ERR!) code EINTEGRITY|ERR_PNPM_TARBALL_INTEGRITY|Integrity check failed`,
		"A package differs from what the lock file says: clear the cache, and update the lock file if it happens again"),
	when(`npm (error|ERR!) code EJSONPARSE|ERR_PNPM_JSON_PARSE|[Uu]nexpected token .* in JSON.*package\.json`,
		"package.json is not valid JSON"),

	// Version specifiers that only another package manager supports.
	when(`Unsupported URL Type "(\w+):"|Couldn't find any versions for "[^"]+" that matches "(workspace|catalog|link):`,
		`{manager} can't install versions written as "${1}${2}:". Commit the lock file of the package manager that `+
			`can, or set packageManager in package.json`),
	when(`This project is configured to use (npm|pnpm|yarn|bun)`,
		"packageManager in package.json asks for ${1}, and a command calls another package manager: use the same in both"),
	when(`Invalid tag name "([^"]*)" of package "`, `package.json requests "${1}", which is not a valid version`),
	when(`notsup Unsupported platform for (\S+?):? wanted`, "Package ${1} is not for Linux: make it an optional dependency"),

	// Composer.
	when(`requires (?:PHP extension )?ext-([\w-]+) .*missing from your system`,
		"PHP on this server has no extension ${1}: ask the operator to install it, or remove the requirement from composer.json"),
	when(`your php version \((\d[\w.]*).* does not satisfy that requirement`,
		"PHP ${1}, which runs here, is not what a package requires: update composer.lock for it, or set the version in composer.json"),
	when(`requires ([\w./-]+)(?: \S+)?, it could not be found in any version`,
		"Package ${1} is in none of the repositories of composer.json: check its name, or add its repository"),
	when(`Required package "([\w./-]+)" is not present in the lock file`,
		"composer.lock and composer.json disagree, ${1} is missing from the lock file: run composer update and commit it"),
	when(`curl error \d+ while downloading https?://([^/\s]+)`,
		"Composer can't reach ${1}: check the repositories in composer.json, or redeploy later"),
	when(`The following exception probably indicates you are offline`,
		"A Composer repository can't be reached: check the repositories in composer.json, or redeploy later"),

	when(`"\./composer\.json" does not contain valid JSON`, "composer.json is not valid JSON"),

	// Registries.
	when(`Failed to replace env in config: \$\{(\w+)\}|Environment variable not found \((\w+)\)`,
		"The registry's settings use the environment variable ${1}${2}, which is not set: add it to the site, for the build"),
	when(
		`npm (?:error|ERR!) code E50[0-9]|ERR_PNPM_FETCH_50[0-9]|npm (?:error|ERR!) (?:5\d\d|code ERR_SOCKET_TIMEOUT)|`+
			`Request failed "50\d |registry.*\b50[234]\b (?:Bad Gateway|Service Unavailable|Gateway)`,
		"The package registry can't be reached or answers with errors: check its address in .npmrc, or redeploy later",
	),

	// Dependencies that are unavailable or incompatible.
	when(`YN0035:[^\w@]*(@?[^\s@]+)@[^:]*:\S*: Package not found`,
		"Package ${1} is not in the registry: check its name, and for a private package set a token"),
	when(`YN0082:[^\w@]*(@?[^\s@]+)@(?:npm:)?(\S+): No candidates found`,
		"${1}@${2} does not exist in the registry: correct the version in package.json and update the lock file"),
	when(`YN0041:|YN0035:.*(?:40[13]|[Aa]uth)`,
		"The registry refused access: set a token for it as an environment variable and use it in .yarnrc.yml"),
	when(`npm (error|ERR!) code ERESOLVE|npm (error|ERR!) ERESOLVE|ERR_PNPM_PEER_DEP_ISSUES`,
		"Dependency versions conflict: align them, or add legacy-peer-deps=true to .npmrc"),
	when(
		`(?:ERR_PNPM_FETCH_404|npm (?:error|ERR!) 404).*GET \S+?/((?:@[^\s/]+/)?[^\s/@]+)/-/([^\s/]+\.tgz)\b`,
		"The registry has no ${2} of package ${1}, which the lock file names: update the lock file, or redeploy later",
	),
	when(
		`npm (?:error|ERR!) 404 .*'(@?[^\s'@]+)(?:@[^\s']*)?'.*(?:is not in|could not be found)|`+
			`ERR_PNPM_FETCH_404.*GET \S+/(@?[^\s/:]+): Not Found|error.*"?https?://\S+/(@?[^\s/":]+)"?: Not found|`+
			`Package "(@?[^\s"@]+)\S*" not found`,
		"Package ${1}${2}${3}${4} is not in the registry: check its name, and for a private package set a token",
	),
	when(`npm (error|ERR!) code E404|ERR_PNPM_FETCH_404`,
		"A package is not in the registry: check its name, and for a private package set a token"),
	when(`No matching version found for (\S+?)\.?(?:\s|$)|Couldn't find any versions for "([^"]+)"`,
		"${1}${2} does not exist in the registry: correct the version in package.json and update the lock file"),
	when(`npm (error|ERR!) code ETARGET|ERR_PNPM_NO_MATCHING_VERSION`,
		"A version that package.json asks for does not exist in the registry: correct it and update the lock file"),
	when(`npm (error|ERR!) code (E401|E403|ENEEDAUTH)|ERR_PNPM_FETCH_40[13]|(401 Unauthorized|403 Forbidden).*(registry|npm)`,
		"The registry refused access: set a token for it as an environment variable and use it in .npmrc"),
	when(`npm (error|ERR!) code EBADENGINE|ERR_PNPM_UNSUPPORTED_ENGINE|The engine "node" is incompatible`,
		"A dependency does not support this version of Node.js: set another one in .nvmrc or engines"),
	when(`ERR_OSSL_EVP_UNSUPPORTED|digital envelope routines::unsupported`,
		"The bundler is too old for this version of Node.js: update it, choose Node.js 16, or set NODE_OPTIONS=--openssl-legacy-provider"),
	when(
		`requires Node\.?js? v?[\d.>=^ ]+|You are using Node\.js [\d.]+.*(required|requires)|`+
			`Node\.js version .* (is|are) (required|not supported)|The Angular CLI requires a minimum Node`,
		"A build tool does not support this version of Node.js: set another one in .nvmrc or engines",
	),
	when(`prebuild-install warn install getaddrinfo (?:ENOTFOUND|EAI_AGAIN) (\S+)`,
		"The compiled file of a dependency could not be downloaded: ${1} does not exist, is not public, or can't be looked up "+
			"right now. Compiling it instead failed too"),
	when(`sharp: Installation error: getaddrinfo (?:ENOTFOUND|EAI_AGAIN) (\S+)`,
		"sharp's library could not be downloaded: ${1} does not exist, is not public, or can't be looked up right now. Versions of sharp "+
			"from 0.33 on come with it from the package registry"),
	when(`gyp ERR! stack is related to network connectivity`,
		"A dependency is compiled during installation, and the headers of Node.js that this needs could not be downloaded from "+
			"nodejs.org: use a version that comes compiled"),
	when(`gyp ERR! find Python|Could not find any Python installation`,
		"A dependency is compiled during installation and needs Python, which is not installed: use a version with prebuilt binaries"),
	when(`^gyp ERR!|npm (?:error|ERR!) command .*node-gyp rebuild`,
		"A dependency with native code could not be compiled: use a version with prebuilt binaries for this version of Node.js"),
	when(
		`Exec format error|ERR_DLOPEN_FAILED|Cannot find module @rollup/rollup-linux|Cannot find native binding|`+
			`for the .linux. platform|installed esbuild for another platform`,
		"A dependency's program for this platform is missing: delete node_modules and the lock file, install again, and commit "+
			"the lock file but not node_modules",
	),

	// Network.
	failing(
		`\b(ENOTFOUND|EAI_AGAIN) ([\w.-]+\w)|getaddrinfo (ENOTFOUND|EAI_AGAIN) ([\w.-]+\w)|Could not resolve host: ([\w.-]+\w)`,
		"Host ${2}${4}${5} does not exist, is not public, or can't be looked up right now. Check its name",
	),
	failing(`\b(ECONNREFUSED|ENETUNREACH|EHOSTUNREACH|ETIMEDOUT) ([\w:][\w.:-]*\w)`,
		"No connection to ${2}: builds reach public hosts on ports 80 and 443 only, by name"),
	when(
		`npm (?:error|ERR!) code (ECONNRESET|ECONNREFUSED|ETIMEDOUT|ENETUNREACH|EAI_AGAIN|ENOTFOUND)|ERR_PNPM_META_FETCH_FAIL`,
		"The package registry can't be reached: check its address in .npmrc, or redeploy later",
	),
	failing(`(CONNECT|[Tt]unneling socket|[Pp]roxy).*\b(403|502)\b|CONNECT tunnel failed|blocked host`,
		"A host could not be reached: builds reach public hosts over HTTP and HTTPS only"),
	when(
		`Repository not found|could not read Username for '(https://[^']+)'|Permission denied \(publickey\)|`+
			`npm (?:error|ERR!) An unknown git error occurred`,
		"A dependency comes from a Git repository that can't be read: make it public, or use a package from a registry",
	),

	// Commands.
	when(
		`[Mm]issing script:? "?([\w:.-]+)"?|ERR_PNPM_NO_SCRIPT +Missing script: (\S+)|Command "([\w:.-]+)" not found\.?$|`+
			`Script not found "([\w:.-]+)"|Couldn't find a script named "([\w:.-]+)"`,
		`package.json has no script "${1}${2}${3}${4}${5}": add it, or set another build command`,
	),
	when(`^hugo: command not found$|(?:sh|bash): (?:line )?(?:\d+: )?hugo: (?:command )?not found|spawn hugo ENOENT`,
		"hugo is not on this host: add the npm package hugo-extended to devDependencies, which brings it, or ask "+
			"the operator to install it"),
	when(
		`^/usr/bin/env: .(\S+?)(?:\\r|\r).: No such file|\$'[^']*\\r': command not found|Illegal option -\s*$|`+
			`set: -\s*: invalid option|^: (?:not found|No such file or directory|command not found)|\^M: bad interpreter`,
		"A script has Windows line endings (CRLF): save it with LF, and add \"*.sh text eol=lf\" to .gitattributes",
	),
	when(
		`(?:sh|bash): (?:line )?(?:\d+: )?(\[\[|source|shopt|declare|pushd|mapfile|typeset|function): (?:command )?not found|`+
			`sh: .*(?:Bad substitution|Syntax error: "\("|Syntax error: redirection unexpected|Illegal option -o pipefail)`,
		"A script uses bash syntax but was run by sh: start it with #!/bin/bash, or call it with bash",
	),
	when(
		`^(zola|mdbook|jekyll|bundle|ruby|gem|python3?|pip3?|uv|poetry|mkdocs|sphinx-build|go|cargo|composer|php|java|deno|`+
			`bun): command not found$|(?:sh|bash): (?:line )?(?:\d+: )?(zola|mdbook|jekyll|bundle|ruby|gem|python3?|pip3?|uv|poetry|`+
			`mkdocs|sphinx-build|go|cargo|composer|php|java|deno|bun): (?:command )?not found`,
		"${1}${2} is not on this host: ask the operator to install it, or add a package that provides it to the project",
	),
	when(
		`(?:sh|bash): (?:line )?(?:\d+: )?(\S+): (?:command )?not found|'(\S+)' is not recognized as an internal|spawn (\S+) ENOENT|`+
			`exec: "([^"]+)": executable file not found|^([^\s:]+): command not found$`,
		"Command ${1}${2}${3}${4}${5} was not found: add the package that has it to dependencies, and install it before the build",
	),
	when(`(?:sh|bash): (?:line )?(?:\d+: )?(\S+): Permission denied`,
		"${1} is not executable: set its executable bit with git update-index --chmod=+x"),

	// Modules.
	when(`Could not resolve entry module "([^"]+\.html)"`,
		"Page ${1} is not there, and the build starts from it: check the root directory and the name, which is case-sensitive here"),
	when(`Preprocessor dependency "([^"]+)" not found`, "Package ${1} is not installed: add it to devDependencies"),
	when(`ESLint couldn't find the (config|plugin) "([^"]+)"`, "ESLint's ${1} ${2} is not installed: add it to devDependencies"),
	when(`ESLint couldn't find (?:an eslint\.config|a configuration file)`,
		"ESLint found no configuration: add eslint.config.js, which ESLint 9 reads instead of .eslintrc"),
	failing(
		`(?:Can't resolve|Could not resolve|Failed to resolve import) ['"](?:node:)?(assert|buffer|child_process|crypto|dns|events|fs|http|`+
			`https|net|os|path|process|querystring|stream|string_decoder|tls|tty|url|util|vm|worker_threads|zlib)(?:/[\w/]+)?['"]`,
		"A package loads ${1} of Node.js, which pages in a browser don't have: use a version of the package for browsers, or give the "+
			"bundler a replacement for ${1}",
	),
	failing(`Failed to resolve import "([^"]+)"`,
		"Import ${1} can't be resolved: add the package to dependencies, or check the path; it is case-sensitive here"),
	failing(
		`^\[vite[\w:-]*\] Failed to resolve (\S+) from |Rollup failed to resolve import "([^"]+)"|Could not resolve "([^"]+)"|`+
			`Could not resolve '([^']+)'|Can't resolve '([^']+)'|Cannot find (?:module|package) '([^']+)'|Cannot find module "([^"]+)"|`+
			`Cannot resolve module '([^']+)'|Could not resolve entry module "([^"]+)"`,
		"Module ${1}${2}${3}${4}${5}${6}${7}${8}${9} can't be found: add the package to dependencies, or check the path; it is "+
			"case-sensitive here",
	),
	when(`ModuleNotFoundError: No module named '([^']+)'`, "Python module ${1} is missing: add it to requirements.txt or pyproject.toml"),
	when(
		`Retrying \(Retry\(.*after connection broken by|Could not fetch URL https?://|Failed to establish a new connection`,
		"The Python package index can't be reached: check its address, or redeploy later",
	),
	when(`(?:ERROR: )?Could not find a version that satisfies the requirement (\S+)`,
		"No version of the Python package ${1} fits: check its name and version"),
	when(`Could not find gem '([^']+)'|Bundler could not find compatible versions for gem "([^"]+)"`,
		"Ruby gem ${1}${2} is not available in the requested version: run bundle update and commit Gemfile.lock"),
	when(`theme[ "]+(\S+?)"? not found|module "([^"]+)" not found.*(theme|hugo)`,
		"Theme ${1}${2} is missing: add it to the repository as files, or as a submodule that .gitmodules declares"),

	// Crashes of the tools themselves.
	when(
		`(\w+) panicked\. This is a bug in|FATAL: An unexpected (Turbopack) error|(Turbopack) Error: .*panic|`+
			`thread '[^']*'(?: \(\d+\))? panicked at (\S+)`,
		"A tool of the build crashed (${1}${2}${3}${4}): that is a fault of the tool. Update it, or go back to the version that worked",
	),
	when(
		`^(?:panic: |fatal error: )(.{1,120})|^# Fatal error in (\S+)|^(Segmentation fault|Bus error)\b|`+
			`unexpected internal (error|exception).*[Pp]lease (?:report|open)`,
		"A tool of the build crashed (${1}${2}${3}${4}): that is a fault of the tool. Update it, or go back to the version that worked",
	),

	// Code.
	when(`Treating warnings as errors because process\.env\.CI = true`,
		"The linter's warnings count as errors because CI=true: correct them, or set CI=false for the build"),
	when(`(\S+?)[(:](\d+)[,:](\d+)\)?(?::| -) error (TS\d+): (.{1,160})`, "TypeScript error in ${1}, line ${2}: ${5} (${4})"),
	when(`^\s*Type error: (.{1,200})`, "TypeScript error: ${1}"),
	when(`"([^"]+)" is not exported by "([^"]+)", imported by "([^"]+)"`, "${3} imports ${1} from ${2}, which does not export it"),
	when(`^\[[\w:@/.-]+\] (\S+) \((\d+):\d+\): (.{1,160})`, "Error in ${1}, line ${2}: ${3}"),
	when(`^\s*-? ?configuration(\S*) has an unknown property '([^']+)'`, "webpack's configuration${1} has an unknown property ${2}"),
	when(`PHP (?:Fatal|Parse) error: +(.{1,200})`, "PHP error: ${1}"),
	when(`Error occurred prerendering page "([^"]+)"`,
		"Page ${1} could not be rendered during the build: it may need data or variables that are missing here"),
	when(`"?next export"? (does not|is no longer|has been removed)|export has been removed in favor of`,
		`Next.js no longer has next export: set output: "export" in next.config.js`),
	when(`(?:ERROR|Error|error)\b.*(?:ESLint|eslint)|✖ \d+ problems? \([1-9]\d* errors?`, "The linter found errors"),
	when(`^\S*(?:SyntaxError|IndentationError): (.{1,200})`, "Syntax error: ${1}"),
	when(
		`(?:environment variable|env(?:ironment)? var) ["'\x60]?(\w*[A-Z_]\w*)["'\x60]? (?:is )?(?:not (?:set|defined|found)|missing|required)|`+
			`[Mm]issing (?:required )?env(?:ironment)? var(?:iable)?s?:? ["'\x60]?(\w+)`,
		"Environment variable ${1}${2} is not set: add it to the site, for the build",
	),
	when(`(?:sh|bash): (?:line )?(?:\d+: )?cd: (?:can't cd to (\S+)|(\S+): No such file or directory)`,
		"Folder ${1}${2} is not there: check its name, which is case-sensitive here, and the root directory"),
	when(
		`^(?:cp|mv|cat|tar): (?:cannot stat |cannot open |can't open )?['‘]?([^'’:]+)['’]?: (?:Cannot open: )?No such file or directory`,
		"${1} is not there: check its name, which is case-sensitive here, and whether a command before should have made it",
	),
	when(`^npm warn EBADENGINE|^npm WARN EBADENGINE`,
		"The build failed, and a dependency does not support this version of Node.js: try another one in .nvmrc or engines"),
}
