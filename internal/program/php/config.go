package php

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"slipway/internal/build/phpversion"
)

// Where PHP finds its configuration in a sandbox.
const (
	dir      = "/etc/slipway-php"
	poolFile = dir + "/fpm.conf"
	iniFile  = dir + "/php.ini"
	// poolSocket is PHP-FPM's name of the socket that it inherits as descriptor 3.
	poolSocket = "/run/slipway/php.sock"
	// databaseSocket is where a program finds its site's databases: runtime.DatabaseSocket.
	databaseSocket = "/run/mysqld/mysqld.sock"
)

// Pool says how PHP-FPM runs for one site.
type Pool struct {
	Memory  int64  // bytes that all of it may use
	Scratch string // writable directory inside, for uploads
	// Sessions is the directory of sessions. Optional: empty is Scratch.
	Sessions string
}

// Argv is the command that starts PHP-FPM of a version. Env is what it needs beside the
// site's own variables, Binds what of the host, and [Pool.Files] what is written for it.
func Argv(v phpversion.Version) []string {
	return []string{v.FPM, "--nodaemonize", "--force-stderr", "--php-ini", iniFile, "--fpm-config", poolFile}
}

// Line returns a line of PHP-FPM's error stream without what PHP-FPM puts before PHP's own.
func Line(text string) string { return strings.TrimPrefix(text, "PHP message: ") }

// Fatal returns what a line of a log says of an error that ended a script, without when; empty
// where it says nothing of one.
func Fatal(line string) string {
	for _, mark := range []string{"PHP Fatal error: ", "PHP Parse error: "} {
		if i := strings.Index(line, mark); i >= 0 {
			return line[i:]
		}
	}
	return ""
}

// Env returns the variable by which PHP-FPM takes over the socket of descriptor 3.
func Env() []string { return []string{"FPM_SOCKETS=" + poolSocket + "=3"} }

// Files maps paths in the sandbox to contents.
func (p Pool) Files() map[string]string {
	return map[string]string{poolFile: p.Conf(), iniFile: p.Ini(), primeFile: primeScript}
}

// CommandFiles are the contents of the files that a command with so many bytes of memory needs, by their places inside.
func CommandFiles(memory int64) map[string]string {
	return map[string]string{iniFile: CommandIni(memory)}
}

// CommandEnv returns the variable by which PHP's command line program finds its configuration.
func CommandEnv() string { return "PHPRC=" + dir }

// What a worker is reckoned with, and how many there are at most.
const (
	workerMemory = 48 << 20
	maxWorkers   = 32
)

// WorkersOf returns how many requests run at once in so many bytes of memory.
func WorkersOf(memory int64) int { return int(min(maxWorkers, max(2, memory/workerMemory))) }

// Conf returns the configuration of PHP-FPM. Workers come as they are needed and go when
// they are not; the site's variables reach them as they are.
func (p Pool) Conf() string {
	return fmt.Sprintf(`[global]
error_log = %[1]s
log_level = warning
log_limit = 8192
daemonize = no
emergency_restart_threshold = 0
[site]
listen = %[2]s
listen.backlog = 511
pm = ondemand
pm.max_children = %[3]d
pm.process_idle_timeout = 30s
pm.max_requests = 1000
request_terminate_timeout = 600s
catch_workers_output = yes
decorate_workers_output = no
clear_env = no
security.limit_extensions = .php
`, path.Join(p.Scratch, "fpm.log"), poolSocket, WorkersOf(p.Memory))
}

// directive is a line of php.ini.
type directive struct{ name, value string }

// production is where PHP's own php.ini-production leaves the values that are built in. Lines that a later version of PHP
// warns of or doesn't have are left out.
var production = []directive{
	{"short_open_tag", "0"},
	{"output_buffering", "4096"}, // so that a header may follow a line of HTML
	{"zend.exception_ignore_args", "1"},
	{"zend.exception_string_param_max_len", "0"},
	{"zend.assertions", "-1"},
	{"error_reporting", "22527"}, // E_ALL without E_DEPRECATED and E_STRICT
	{"display_errors", "0"},
	{"display_startup_errors", "0"},
	{"log_errors", "1"},
	{"expose_php", "0"},
	{"max_input_time", "60"},
	{"request_order", "GP"},
	{"register_argc_argv", "0"}, // else the query string is $_SERVER["argv"]
	{"enable_dl", "0"},
	{"session.gc_divisor", "1000"},
	{"session.gc_probability", "1"}, // as PHP has it; Debian's file leaves the sessions to its cron
	{"opcache.file_update_protection", "2"},
}

// differences are what sites need otherwise. What a site may change itself, by ini_set or a .user.ini of its release, stays
// changeable; the sandbox is what holds it.
var differences = []directive{
	{"max_execution_time", "60"},
	{"max_input_vars", "5000"}, // forms of WordPress and Drupal have more than 1,000 fields
	{"post_max_size", "1024M"},
	{"upload_max_filesize", "1024M"},
	{"max_file_uploads", "50"},
	{"session.use_strict_mode", "1"},
	{"session.cookie_secure", "1"},
	{"session.cookie_httponly", "1"},
	{"session.cookie_samesite", "Lax"},
	{"html_errors", "0"},
	{"fastcgi.logging", "0"},     // what is logged goes to the error stream as well, and would be there twice
	{"variables_order", "EGPCS"}, // a site's variables are in $_ENV, too
	{"realpath_cache_ttl", "600"},
	{"opcache.enable", "1"},
	{"opcache.max_accelerated_files", "20000"},
	{"opcache.jit", "off"},
	{"date.timezone", "UTC"},
	{"mysqli.default_socket", databaseSocket}, // of "localhost"
	{"pdo_mysql.default_socket", databaseSocket},
}

// Ini returns php.ini of PHP-FPM.
func (p Pool) Ini() string {
	return ini([]directive{
		{"memory_limit", megabytes(max(64<<20, min(512<<20, p.Memory/2)))},
		{"upload_tmp_dir", p.Scratch},
		{"sys_temp_dir", "/tmp"},
		{"session.save_path", cmp.Or(p.Sessions, p.Scratch)},
		{"opcache.memory_consumption", strconv.FormatInt(max(32, min(128, p.Memory/4>>20)), 10)},
	})
}

// CommandIni returns php.ini of a site's commands, workers and crons, each of which may use so many bytes.
func CommandIni(memory int64) string { return ini([]directive{{"memory_limit", megabytes(memory)}}) }

func megabytes(bytes int64) string { return strconv.FormatInt(bytes>>20, 10) + "M" }

func ini(own []directive) string {
	var b strings.Builder
	for _, d := range slices.Concat(production, differences, own) {
		fmt.Fprintf(&b, "%s = %q\n", d.name, d.value)
	}
	return b.String()
}
