package php

import (
	"cmp"
	"fmt"
	"path"
	"strconv"
	"strings"

	"slipway/internal/build/phpversion"
)

// Where PHP finds its configuration in a sandbox.
const (
	poolFile = "/etc/slipway-php/fpm.conf"
	iniFile  = "/etc/slipway-php/php.ini"
	// poolSocket is PHP-FPM's name of the socket that it inherits as descriptor 3.
	poolSocket = "/run/slipway/php.sock"
)

// Pool says how PHP-FPM runs for one site.
type Pool struct {
	Memory  int64  // bytes that all of it may use
	Scratch string // writable directory inside, for uploads
	// Sessions is the directory of sessions. Optional: empty is Scratch.
	Sessions string
}

// Argv is the command that starts PHP-FPM of a version. Env is what it needs beside the
// site's own variables, Binds what of the host, and Pool.Files what is written for it.
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

// Files are the contents of the files that PHP-FPM needs, by their places inside.
func (p Pool) Files() map[string]string {
	return map[string]string{poolFile: p.Conf(), iniFile: p.Ini(), primeFile: primeScript}
}

// What a worker is reckoned with, and how many there are at most.
const (
	workerMemory = 48 << 20
	maxWorkers   = 32
)

// workers are how many requests run at once.
func (p Pool) workers() int {
	return int(min(maxWorkers, max(2, p.Memory/workerMemory)))
}

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
`, path.Join(p.Scratch, "fpm.log"), poolSocket, p.workers())
}

// Ini returns php.ini. What a site may change itself, by ini_set or a .user.ini of its
// release, stays changeable; the sandbox is what holds it.
func (p Pool) Ini() string {
	lines := [][2]string{
		{"memory_limit", strconv.FormatInt(max(64, min(512, p.Memory/2>>20)), 10) + "M"},
		{"max_execution_time", "60"},
		{"max_input_vars", "5000"},
		{"post_max_size", "1024M"},
		{"upload_max_filesize", "1024M"},
		{"max_file_uploads", "50"},
		{"upload_tmp_dir", p.Scratch},
		{"sys_temp_dir", "/tmp"},
		{"session.save_path", cmp.Or(p.Sessions, p.Scratch)},
		{"session.use_strict_mode", "1"},
		{"session.cookie_secure", "1"},
		{"session.cookie_httponly", "1"},
		{"session.cookie_samesite", "Lax"},
		{"session.gc_probability", "1"},
		{"expose_php", "0"},
		{"display_errors", "0"},
		{"display_startup_errors", "0"},
		{"log_errors", "1"},
		{"html_errors", "0"},
		{"fastcgi.logging", "0"},     // what is logged goes to the error stream as well, and would be there twice
		{"error_reporting", "24575"}, // E_ALL without E_DEPRECATED
		{"cgi.fix_pathinfo", "0"},
		{"variables_order", "EGPCS"},
		{"allow_url_include", "0"},
		{"realpath_cache_size", "4096K"},
		{"realpath_cache_ttl", "600"},
		{"opcache.enable", "1"},
		{"opcache.memory_consumption", strconv.FormatInt(max(32, min(128, p.Memory/4>>20)), 10)},
		{"opcache.interned_strings_buffer", "8"},
		{"opcache.max_accelerated_files", "20000"},
		{"opcache.validate_timestamps", "1"},
		{"opcache.revalidate_freq", "2"},
		{"opcache.file_update_protection", "0"}, // a release is whole before it runs
		{"opcache.jit", "off"},
		{"openssl.cafile", ""},
		{"date.timezone", "UTC"},
	}
	var b strings.Builder
	for _, l := range lines {
		if l[1] != "" {
			fmt.Fprintf(&b, "%s = %q\n", l[0], l[1])
		}
	}
	return b.String()
}
