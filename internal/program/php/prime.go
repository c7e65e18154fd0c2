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
//
// opcache_compile_file doesn't hoist classes: when a request runs the script later, a class exists only from the line of its declaration
// on. So a script is compiled ahead only if it declares no class, or one before which no code runs but a guard such as
// defined("ABSPATH") || exit.
const primeScript = `<?php
function slipway_same_ahead($file) {
  $text = (string)file_get_contents($file, false, null, 0, 1 << 18);
  if (strlen($text) >= 1 << 18) { return false; }
  if (!preg_match('/\b(?:class|interface|trait|enum)\b/i', $text)) { return true; }
  $kinds = [T_CLASS, T_INTERFACE, T_TRAIT, defined("T_ENUM") ? T_ENUM : -1];
  $plain = [T_OPEN_TAG, T_NAMESPACE, T_USE, T_AS, T_FUNCTION, T_CONST, T_DECLARE, T_ABSTRACT, T_FINAL, T_IF, T_BOOLEAN_OR, T_LOGICAL_OR,
    T_EXIT, T_RETURN, T_LNUMBER, T_CONSTANT_ENCAPSED_STRING, T_STRING, T_NS_SEPARATOR, "=", ";", ",", "{", "}", "!", ")"];
  foreach (["T_READONLY", "T_NAME_QUALIFIED", "T_NAME_FULLY_QUALIFIED"] as $new) { $plain[] = defined($new) ? constant($new) : -1; }
  $classes = $attribute = 0; $last = null; $runs = false;
  foreach (token_get_all($text) as $t) {
    [$id, $word] = is_array($t) ? $t : [$t, $t];
    if (in_array($id, [T_WHITESPACE, T_COMMENT, T_DOC_COMMENT], true)) { continue; }
    if ($attribute > 0 || defined("T_ATTRIBUTE") && $id === T_ATTRIBUTE) {
      $attribute += $id === "]" ? -1 : (int)($id === "[" || $id !== "]" && $word === "#[");
    } elseif (in_array($id, $kinds, true) && $last !== T_NEW && $last !== T_DOUBLE_COLON) {
      if ($runs || ++$classes > 1) { return false; }
    } elseif (!$classes && !in_array($id, $plain, true)) {
      $runs = $runs || $id !== "(" || !in_array($last, [T_DECLARE, T_IF, T_EXIT, "!", "(", "defined"], true);
    }
    $last = $id === T_STRING && strtolower($word) === "defined" ? "defined" : $id;
  }
  return true;
}
error_reporting(0); ini_set("log_errors", "0"); set_time_limit(10); ini_set("opcache.file_update_protection", "0");
if (!function_exists("opcache_compile_file") || !function_exists("token_get_all") || !($_SERVER["SLIPWAY_PRIME"] ?? "")) { exit; }
$top = $_SERVER["SLIPWAY_PRIME"]; $until = microtime(true) + 3; $n = 0;
$map = "$top/vendor/composer/autoload_classmap.php";
if (is_file($map)) { $files = array_unique(array_values(include $map)); } else {
  $skip = fn($f) => !$f->isLink() && !in_array($f->getFilename(), ["vendor", "node_modules", "tests", "storage", "var", "uploads"]);
  $files = new RecursiveIteratorIterator(new RecursiveCallbackFilterIterator(new RecursiveDirectoryIterator($top, FilesystemIterator::SKIP_DOTS), $skip));
}
foreach ($files as $file) {
  if (microtime(true) > $until) { break; }
  $file = (string)$file;
  if (!str_ends_with($file, ".php") || !is_file($file) || is_writable($file) || opcache_is_script_cached($file) || !slipway_same_ahead($file)) { continue; }
  try { opcache_compile_file($file); } catch (Throwable $e) { }
  if (++$n >= 2000) { break; }
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
