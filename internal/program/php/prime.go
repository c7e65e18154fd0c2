package php

import (
	"context"
	"io"

	"slipway/internal/program/fastcgi"
)

// primeFile is where a sandbox has the script that fills OPcache.
const primeFile = "/etc/slipway-php/prime.php"

// primeScript compiles what Composer's class map names, or else the release's own scripts,
// into OPcache, for some seconds at most. It runs nothing of them, and a file that can't be
// compiled is left to the request that needs it. A release is whole before it runs, so that its scripts are compiled however new
// they are; those that the site can write are left out.
const primeScript = `<?php
error_reporting(0); ini_set("log_errors", "0"); set_time_limit(10); ini_set("opcache.file_update_protection", "0");
if (!function_exists("opcache_compile_file") || !($_SERVER["SLIPWAY_PRIME"] ?? "")) { exit; }
$top = $_SERVER["SLIPWAY_PRIME"]; $until = microtime(true) + 3; $n = 0;
$map = "$top/vendor/composer/autoload_classmap.php";
if (is_file($map)) { $files = array_unique(array_values(include $map)); } else {
  $skip = fn($f) => !$f->isLink() && !in_array($f->getFilename(), ["vendor", "node_modules", "tests", "storage", "var", "uploads"]);
  $files = new RecursiveIteratorIterator(new RecursiveCallbackFilterIterator(new RecursiveDirectoryIterator($top, FilesystemIterator::SKIP_DOTS), $skip));
}
foreach ($files as $file) {
  $file = (string)$file;
  if (!str_ends_with($file, ".php") || !is_file($file) || is_writable($file) || opcache_is_script_cached($file)) { continue; }
  try { opcache_compile_file($file); } catch (Throwable $e) { }
  if (++$n >= 2000 || microtime(true) > $until) { break; }
  if ($n % 50 === 0 && (opcache_get_status(false)["memory_usage"]["free_memory"] ?? 0) < 16 << 20) { break; }
}
echo $n;
`

// Prime compiles a release's scripts into OPcache, as far as they fit in a few seconds, so
// that the first visitors don't wait for that. top is the project inside. What goes wrong
// is no harm: the requests that need a script compile it.
func (s *Site) Prime(ctx context.Context, top string) error {
	conn, err := s.Dial(ctx)
	if err != nil {
		return err
	}
	resp, err := fastcgi.Do(ctx, conn, fastcgi.Request{
		Params: []fastcgi.Param{
			{Name: "SCRIPT_FILENAME", Value: primeFile},
			{Name: "SCRIPT_NAME", Value: "/prime.php"},
			{Name: "REQUEST_METHOD", Value: "GET"},
			{Name: "REQUEST_URI", Value: "/"},
			{Name: "SERVER_PROTOCOL", Value: "HTTP/1.1"},
			{Name: "REDIRECT_STATUS", Value: "200"},
			{Name: "SLIPWAY_PRIME", Value: top},
		},
	})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<10))
	return err
}
