<?php
// What the object cache needs of WordPress, and what the tests ask of it: php objectcache.php WHAT.
error_reporting(E_ALL);
ini_set('memory_limit', '64M');
set_error_handler(function ($no, $text, $file, $line) { if (error_reporting() & $no) { echo "$text at $line of $file\n"; } return true; });
define('ABSPATH', '/');
define('WP_CONTENT_DIR', getenv('CONTENT'));
$multisite = (bool) getenv('MULTISITE');
function is_multisite() { return $GLOBALS['multisite']; }
function get_current_blog_id() { return 1; }
function wp_suspend_cache_addition() { return false; }
function wp_using_ext_object_cache($on = null) { static $is = false; $was = $is; $is = $on ?? $is; return $was; }
function _doing_it_wrong($f, $m, $v) {}
function _deprecated_function($f, $v, $r) {}
function wp_load_translations_early() {}
function __($text) { return $text; }
require dirname(__DIR__, 2) . '/core/files/redis.php';

if ($argv[1] !== 'hostile') { // a busy machine is no reason to go on without Redis here
	\Slipway\Redis::$silence = 60000000;
	\Slipway\Redis::$longest = 60.0;
}

function start(): bool {
	if (!\Slipway\use_object_cache()) {
		return false;
	}
	wp_cache_init();
	wp_cache_add_global_groups(['users', 'site-options']);
	wp_cache_add_non_persistent_groups(['counts']);
	return true;
}

switch ($argv[1]) {
	case 'get': // GROUP KEY
		echo start() ? json_encode(wp_cache_get($argv[3], $argv[2])) : 'none';
		break;
	case 'set': // GROUP KEY VALUE
		echo start() ? json_encode(wp_cache_set($argv[3], $argv[4], $argv[2])) : 'none';
		break;
	case 'flush': case 'flush_group': // GROUP
		start();
		echo json_encode($argv[1] === 'flush' ? wp_cache_flush() : wp_cache_flush_group($argv[2]));
		break;
	case 'figures':
		start();
		echo json_encode($GLOBALS['wp_object_cache']->figures());
		break;
	case 'late': // a value is changed, and its group flushed, by a request that began in the epoch before
		start();
		file_put_contents($argv[2], 'another'); // by Slipway
		foreach (['title', 'name'] as $key) { // read by another request before our change
			echo exec(PHP_BINARY . ' ' . __FILE__ . " set options $key old"), ' ';
		}
		echo json_encode(wp_cache_set('title', 'new', 'options')), json_encode(wp_cache_delete('name', 'options'));
		break;
	case 'paused': // the pause ends, and another request reads, before this one changes its value and ends
		file_put_contents($argv[2], 'offdef');
		$begun = start();
		file_put_contents($argv[2], 'fourth');
		echo exec(PHP_BINARY . ' ' . __FILE__ . ' set options title old'), ' ', json_encode($begun), 'none';
		break;
	case 'hostile': // whatever Redis does, the request goes on with what it has itself
		if (start()) {
			$big = str_repeat('x', 3 << 20);
			wp_cache_set('a', $big, 'g');
			wp_cache_set('b', ['x' => str_repeat('y', 900 << 10)], 'g');
			wp_cache_get('c', 'g');
			wp_cache_get_multiple(range(1, 300), 'g');
			wp_cache_add('d', 1, 'g');
			wp_cache_incr('d', 1, 'g');
			wp_cache_flush_group('h');
			$GLOBALS['wp_object_cache']->figures();
			echo wp_cache_get('a', 'g') === $big && wp_cache_get('b', 'g')['x'][0] === 'y' ? '' : 'it has lost what it has set itself ';
		}
		echo 'fine';
		break;
	case 'same': // as WordPress's own, when everything is in Redis and nothing in the request
		class NotExtended { public $a = 1; public $of; }
		$core = str_replace(['class WP_Object_Cache', '#[AllowDynamicProperties]'], ['class Core_Cache', ''], file_get_contents('/usr/share/wordpress/wp-includes/class-wp-object-cache.php'));
		eval(substr($core, strpos($core, '<?php') + 5));
		start() or die('no Redis');
		$ours = $GLOBALS['wp_object_cache'];
		$ours->flush();
		$theirs = new Core_Cache();
		$theirs->add_global_groups(['users', 'site-options']);
		mt_srand((int) $argv[2]);
		$pick = fn(array $of) => $of[mt_rand(0, count($of) - 1)];
		$key = fn() => $pick(['a', 'b', 'c:d', 'd', '5', 5, 0, "line\nbreak", str_repeat('k', 600), 'ö']);
		$group = fn() => $pick(['options', 'posts', 'users', 'counts', '', 'default', 'posts:c', 'g*[x]']);
		$value = function () use ($pick) {
			$o = new NotExtended();
			$o->of = [1, 'x' => null];
			return $pick([1, -7, 0, '5', '007', 'text', '', 1.5, true, false, null, [], ['a' => [1, 2]], $o, str_repeat('z', 2000000), "\r\n$-1\r\n", '12345678901234567890', PHP_INT_MAX, 'b:0;', '-']);
		};
		for ($i = 0; $i < 4000; $i++) {
			$k = $key();
			$g = $group();
			$v = $value();
			$data = [$key() => $value(), $key() => $value()];
			$keys = [$key(), $key(), $key()];
			$args = [
				'add' => [$k, $v, $g], 'set' => [$k, $v, $g, mt_rand(0, 1) * 1000], 'get' => [$k, $g], 'replace' => [$k, $v, $g], 'delete' => [$k, $g],
				'add_multiple' => [$data, $g], 'set_multiple' => [$data, $g], 'get_multiple' => [array_values(array_unique($keys, SORT_STRING)), $g], 'delete_multiple' => [array_values(array_unique($keys, SORT_STRING)), $g],
				'incr' => [$k, mt_rand(-3, 9), $g], 'decr' => [$k, mt_rand(-3, 9), $g], 'flush_group' => [$g ?: 'default'], 'switch_to_blog' => [mt_rand(1, 3)], 'flush' => [],
			];
			$what = $pick(array_merge(array_keys($args), array_fill(0, 12, 'get'), array_fill(0, 10, 'set')));
			if ($what === 'flush' && mt_rand(0, 20)) {
				continue;
			}
			if ($what === 'flush_group' && \Slipway\Redis::shared() !== '') {
				continue; // it flushes all groups there
			}
			if (($what === 'incr' || $what === 'decr') && (is_float($now = $theirs->get($k, $g)) || $now === PHP_INT_MAX || is_string($now) && strlen($now) > 15)) {
				continue; // theirs leaves the integers there
			}
			$want = $theirs->$what(...$args[$what]);
			$got = $ours->$what(...$args[$what]);
			if (serialize($want) !== serialize($got)) {
				printf("%d: %s %s is %.200s, not %.200s\n", $i, $what, substr(json_encode($args[$what], JSON_PARTIAL_OUTPUT_ON_ERROR), 0, 300), json_encode($got, JSON_PARTIAL_OUTPUT_ON_ERROR), json_encode($want, JSON_PARTIAL_OUTPUT_ON_ERROR));
				exit(1);
			}
			if (mt_rand(0, 2) === 0) {
				// What is too large for Redis, and what is not for it, ends with the request: theirs too.
				$ours->flush_runtime();
				(function () {
					unset($this->cache['counts']);
					foreach ($this->cache as $g => $values) {
						foreach ($values as $k => $v) {
							if (is_string($v) && strlen($v) > 1 << 20) {
								unset($this->cache[$g][$k]);
							}
						}
					}
				})->call($theirs);
			}
		}
		echo 'same';
		break;
}
