<?php
// Slipway's object cache: WordPress's interface, in front of the Redis of the site. It holds
// copies alone of what can be read or worked out again; transients stay in the database.

defined('ABSPATH') || exit;

class WP_Object_Cache {
	public $cache_hits = 0;
	public $cache_misses = 0;
	public $global_groups = [];

	private const LONGEST = 86400;  // seconds: what was missed by whoever changed it goes at last
	private const LONGEST_SHARED = 3600; // on the operator's server, where what nobody finds any more takes others' room
	private const AT_ONCE = 50;     // commands
	private const NOTED = 2000;     // keys that a request has changed
	private const BYTES = 1 << 20;  // of commands sent at once, about

	private $cache = []; // of this request: group → id → value
	private $passing = []; // groups that end with the request
	private $changed = []; // names of keys that this request may have changed
	private $wide = false; // it has changed a whole group
	private $multisite;
	private $blog_prefix;
	private $redis;

	public function __construct(\Slipway\Redis $redis) {
		$this->redis = $redis;
		$this->multisite = is_multisite();
		$this->blog_prefix = $this->multisite ? get_current_blog_id() . ':' : '';
	}

	private function valid($key): bool {
		if (is_int($key) || is_string($key) && trim($key) !== '') {
			return true;
		}
		_doing_it_wrong('wp_cache', 'The key of a cached value is an integer or a string that is not empty.', '6.1.0');
		return false;
	}

	private function id($key, $group): string {
		return $this->multisite && !isset($this->global_groups[$group]) ? $this->blog_prefix . $key : (string) $key;
	}

	private function name(string $id, $group): string {
		return strlen($group) . ':' . $group . ':' . (strlen($id) > 500 ? '#' . hash('sha256', $id) : $id);
	}

	// changing returns the whole name of a key that this request may change.
	private function changing(string $id, $group): string {
		$name = $this->name($id, $group);
		if (count($this->changed) <= self::NOTED) {
			$this->changed[$name] = true;
		}
		return $this->redis->prefix() . $name;
	}

	// settle is called when the request has ended. Where the epoch has changed meanwhile, what
	// others have read before our change is under other names.
	public function settle(): void {
		if (!$this->changed && !$this->wide || !$this->redis->works() || !$this->redis->moved()) {
			return;
		}
		if ($this->wide || count($this->changed) > self::NOTED) {
			\Slipway\Redis::forget();
			return;
		}
		$prefix = $this->redis->prefix();
		$this->ask(array_map(fn($name) => ['DEL', $prefix . $name], array_map('strval', array_keys($this->changed))));
	}

	private function here(string $id, $group): bool {
		return isset($this->cache[$group]) && array_key_exists($id, $this->cache[$group]);
	}

	private function remote($group): bool { return !isset($this->passing[$group]) && $this->redis->works(); }

	// ask sends commands, as many at once as is good, and returns their answers; null where Redis
	// is lost, which it also is when it refuses one: an old value would stay.
	private function ask(array $commands): ?array {
		$answers = $batch = [];
		$bytes = 0;
		try {
			foreach ($commands as $i => $command) {
				$batch[] = $command;
				$bytes += strlen((string) ($command[2] ?? ''));
				if (count($batch) >= self::AT_ONCE || $bytes > self::BYTES || $i === count($commands) - 1) {
					array_push($answers, ...$this->redis->calls($batch));
					$batch = [];
					$bytes = 0;
				}
			}
			if (in_array(false, $answers, true)) {
				throw $this->redis->lose('it refuses');
			}
		} catch (\Slipway\RedisLost $e) {
			return null;
		}
		return $answers;
	}

	// text returns a value as Redis has it: integers as they are, so that they can be counted up.
	// Null is one that is not stored there.
	private function text($data): ?string {
		if (is_int($data)) {
			return (string) $data;
		}
		try {
			$text = serialize($data);
		} catch (\Throwable $e) {
			return null;
		}
		return strlen($text) > \Slipway\Redis::MAX_VALUE ? null : $text;
	}

	private function value(string $text, &$good) {
		$good = true;
		if (preg_match('/^-?\d{1,19}$/D', $text)) {
			return (int) $text;
		}
		try {
			$data = @unserialize($text);
		} catch (\Throwable $e) {
			$data = false;
		}
		$good = $data !== false || $text === 'b:0;';
		return $data;
	}

	private function life($expire): int {
		$expire = (int) $expire;
		$longest = \Slipway\Redis::shared() === '' ? self::LONGEST : self::LONGEST_SHARED;
		return $expire > 0 ? min($expire, $longest) : $longest;
	}

	private function keep(string $id, $group, $data): void {
		$this->cache[$group][$id] = is_object($data) ? clone $data : $data;
	}

	public function add($key, $data, $group = 'default', $expire = 0) {
		return $this->valid($key) && ($this->add_multiple([$key => $data], $group, $expire)[$key] ?? false);
	}

	public function add_multiple(array $data, $group = '', $expire = 0) {
		$group = $group ?: 'default';
		$values = array_fill_keys(array_keys($data), false);
		if (wp_suspend_cache_addition()) {
			return $values;
		}
		$asked = $commands = [];
		foreach ($data as $key => $value) {
			if (!$this->valid($key)) {
				continue;
			}
			$id = $this->id($key, $group);
			if ($this->here($id, $group)) {
				continue;
			}
			$text = $this->remote($group) ? $this->text($value) : null;
			if ($text === null) {
				if (!$this->remote($group) || !$this->fetch([$key], $group, false)) {
					$this->keep($id, $group, $value);
					$values[$key] = true;
				}
				continue;
			}
			$asked[] = $key;
			$commands[] = ['SET', $this->redis->prefix() . $this->name($id, $group), $text, 'EX', $this->life($expire), 'NX'];
		}
		$answers = $commands ? $this->ask($commands) : [];
		foreach ($asked as $i => $key) {
			if ($answers === null || $answers[$i] === 'OK') {
				$this->keep($this->id($key, $group), $group, $data[$key]);
				$values[$key] = true;
			}
		}
		return $values;
	}

	public function set($key, $data, $group = 'default', $expire = 0) {
		return $this->valid($key) && ($this->set_multiple([$key => $data], $group, $expire)[$key] ?? false);
	}

	public function set_multiple(array $data, $group = '', $expire = 0) {
		$group = $group ?: 'default';
		$values = $commands = [];
		foreach ($data as $key => $value) {
			if (!($values[$key] = $this->valid($key))) {
				continue;
			}
			$id = $this->id($key, $group);
			$this->keep($id, $group, $value);
			if ($this->remote($group)) {
				$text = $this->text($value);
				$name = $this->changing($id, $group);
				$commands[] = $text === null ? ['DEL', $name] : ['SET', $name, $text, 'EX', $this->life($expire)];
			}
		}
		if ($commands) {
			$this->ask($commands);
		}
		return $values;
	}

	public function replace($key, $data, $group = 'default', $expire = 0) {
		$group = $group ?: 'default';
		if (!$this->valid($key)) {
			return false;
		}
		$id = $this->id($key, $group);
		$text = $this->remote($group) ? $this->text($data) : null;
		if ($text === null) {
			$this->get($key, $group, false, $found);
			return $found && $this->set($key, $data, $group, $expire);
		}
		$answers = $this->ask([['SET', $this->changing($id, $group), $text, 'EX', $this->life($expire), 'XX']]);
		if ($answers === null ? !$this->here($id, $group) : $answers[0] !== 'OK') {
			unset($this->cache[$group][$id]);
			return false;
		}
		$this->keep($id, $group, $data);
		return true;
	}

	public function get($key, $group = 'default', $force = false, &$found = null) {
		$found = false;
		if (!$this->valid($key)) {
			return false;
		}
		$all = $this->fetch([$key], $group ?: 'default', $force);
		if (!$all) {
			return false;
		}
		$found = true;
		return reset($all);
	}

	public function get_multiple($keys, $group = 'default', $force = false) {
		$found = $this->fetch($keys, $group ?: 'default', $force);
		$values = [];
		foreach ($keys as $key) {
			$values[$key] = array_key_exists($key, $found) ? $found[$key] : false;
		}
		return $values;
	}

	// fetch returns those of the values that there are, by their keys.
	private function fetch($keys, $group, $force): array {
		$values = $asked = $names = [];
		foreach ($keys as $key) {
			if (!$this->valid($key)) {
				continue;
			}
			$id = $this->id($key, $group);
			if ($this->here($id, $group) && !($force && $this->remote($group))) {
				$values[$key] = $this->cache[$group][$id];
			} elseif ($this->remote($group)) {
				$asked[] = $key;
				$names[] = $this->redis->prefix() . $this->name($id, $group);
			}
		}
		foreach (array_chunk($names, self::AT_ONCE) as $n => $part) {
			$answers = $this->ask([array_merge(['MGET'], $part)]);
			if ($answers === null || !is_array($answers[0])) {
				break;
			}
			foreach ($part as $i => $_) {
				$key = $asked[$n * self::AT_ONCE + $i];
				$text = $answers[0][$i] ?? null;
				if (!is_string($text)) {
					continue;
				}
				$value = $this->value($text, $good);
				if ($good) {
					$this->keep($this->id($key, $group), $group, $value);
					$values[$key] = $value;
				}
			}
		}
		foreach ($values as $key => $value) {
			$values[$key] = is_object($value) ? clone $value : $value;
		}
		$this->cache_hits += count($values);
		$this->cache_misses += count($keys) - count($values);
		return $values;
	}

	public function delete($key, $group = 'default', $deprecated = false) {
		return $this->valid($key) && ($this->delete_multiple([$key], $group)[$key] ?? false);
	}

	public function delete_multiple(array $keys, $group = '') {
		$group = $group ?: 'default';
		$values = $commands = $asked = [];
		foreach ($keys as $key) {
			if (!$this->valid($key)) {
				continue;
			}
			$id = $this->id($key, $group);
			$values[$key] = $this->here($id, $group);
			unset($this->cache[$group][$id]);
			if ($this->remote($group)) {
				$asked[] = $key;
				$commands[] = ['DEL', $this->changing($id, $group)];
			}
		}
		$answers = $commands ? $this->ask($commands) : [];
		foreach ($asked as $i => $key) {
			$values[$key] = $values[$key] || ($answers[$i] ?? 0) > 0;
		}
		return $values;
	}

	// count counts up a number that is there, whoever else does at the same time. It returns the new one, false where there
	// is none, and null where Redis is lost.
	private function count(string $name, int $by) {
		for ($try = 0; $try < 50; $try++) {
			$answers = $this->ask([['WATCH', $name], ['GET', $name]]);
			if ($answers === null) {
				return null;
			}
			if (!is_string($answers[1])) {
				return $this->ask([['UNWATCH']]) === null ? null : false;
			}
			$now = $this->value($answers[1], $good);
			$next = max(0, ($good && is_numeric($now) ? (int) $now : 0) + $by);
			$answers = $this->ask([['MULTI'], ['SET', $name, $next, 'KEEPTTL'], ['EXEC']]);
			if ($answers === null || is_array($answers[2])) {
				return $answers === null ? null : $next;
			}
		}
		$this->redis->lose('others count all the time');
		return null;
	}

	public function incr($key, $offset = 1, $group = 'default') {
		$group = $group ?: 'default';
		if (!$this->valid($key)) {
			return false;
		}
		$id = $this->id($key, $group);
		if ($this->remote($group)) {
			$next = $this->count($this->changing($id, $group), (int) $offset);
			if ($next !== null) {
				unset($this->cache[$group][$id]);
				return $next === false ? false : $this->cache[$group][$id] = $next;
			}
		}
		if (!$this->here($id, $group)) {
			return false;
		}
		$now = $this->cache[$group][$id];
		return $this->cache[$group][$id] = max(0, (is_numeric($now) ? $now : 0) + (int) $offset);
	}

	public function decr($key, $offset = 1, $group = 'default') {
		return $this->incr($key, -(int) $offset, $group);
	}

	public function flush() {
		$this->cache = [];
		$this->flush_redis();
		return true;
	}

	// flush_redis makes all values unfindable. On the operator's server, where nobody may delete what others have, they expire.
	private function flush_redis(): void {
		if (!$this->redis->works()) {
			return;
		}
		if (\Slipway\Redis::shared() === '') {
			$this->ask([['FLUSHDB']]);
			return;
		}
		\Slipway\Redis::forget();
		if (!$this->redis->moved()) {
			$this->redis->lose('the epoch stays');
		}
	}

	public function flush_runtime() {
		$this->cache = [];
		return true;
	}

	public function flush_group($group) {
		$group = $group ?: 'default';
		unset($this->cache[$group]);
		if (!$this->remote($group)) {
			return true;
		}
		$this->wide = true;
		if (\Slipway\Redis::shared() !== '') { // nobody may look for keys there
			$this->flush_redis();
			return true;
		}
		$like = addcslashes($this->redis->prefix() . $this->name('', $group), '*?[]\\') . '*';
		$from = '0';
		try {
			for ($round = 0; $round < 200; $round++) {
				$answer = $this->redis->call(['SCAN', $from, 'MATCH', $like, 'COUNT', 1000]);
				if (!is_array($answer) || count($answer) !== 2 || !is_array($answer[1])) {
					break;
				}
				if ($answer[1] && $this->redis->call(array_merge(['UNLINK'], $answer[1])) === false) {
					break;
				}
				if (($from = (string) $answer[0]) === '0') {
					return true;
				}
			}
			$this->flush_redis(); // too many to look through
		} catch (\Slipway\RedisLost $e) {
		}
		return true;
	}

	public function add_global_groups($groups) {
		$this->global_groups = array_merge($this->global_groups, array_fill_keys((array) $groups, true));
	}

	public function add_non_persistent_groups($groups) {
		$this->passing = array_merge($this->passing, array_fill_keys((array) $groups, true));
	}

	public function switch_to_blog($blog_id) {
		$this->blog_prefix = $this->multisite ? (int) $blog_id . ':' : '';
	}

	public function reset() {
		foreach (array_keys($this->cache) as $group) {
			if (!isset($this->global_groups[$group])) {
				unset($this->cache[$group]);
			}
		}
	}

	public function stats() {
		echo "<p><strong>Cache Hits:</strong> {$this->cache_hits}<br /><strong>Cache Misses:</strong> {$this->cache_misses}</p>";
	}

	// figures returns what Redis says of itself; empty where it says nothing.
	public function figures(): array {
		if (!$this->redis->works()) {
			return [];
		}
		if (\Slipway\Redis::shared() !== '') { // which doesn't say what is a site's
			return $this->ask([['PING']]) === null ? [] : ['hits' => 0, 'misses' => 0, 'bytes' => 0, 'keys' => 0];
		}
		$answers = $this->ask([['INFO', 'stats'], ['INFO', 'memory'], ['DBSIZE']]);
		if ($answers === null) {
			return [];
		}
		$of = fn($i, $name) => preg_match("/^$name:(\\d+)\r?$/m", (string) $answers[$i], $m) ? (int) $m[1] : 0;
		return ['hits' => $of(0, 'keyspace_hits'), 'misses' => $of(0, 'keyspace_misses'), 'bytes' => $of(1, 'used_memory'), 'keys' => (int) $answers[2]];
	}
}

function wp_cache_init() {
	$cache = $GLOBALS['wp_object_cache'] = new WP_Object_Cache($GLOBALS['slipway_redis']);
	register_shutdown_function(fn() => register_shutdown_function([$cache, 'settle'])); // after all others
}
function wp_cache_add($key, $data, $group = '', $expire = 0) { return $GLOBALS['wp_object_cache']->add($key, $data, $group, (int) $expire); }
function wp_cache_add_multiple(array $data, $group = '', $expire = 0) { return $GLOBALS['wp_object_cache']->add_multiple($data, $group, $expire); }
function wp_cache_replace($key, $data, $group = '', $expire = 0) { return $GLOBALS['wp_object_cache']->replace($key, $data, $group, (int) $expire); }
function wp_cache_set($key, $data, $group = '', $expire = 0) { return $GLOBALS['wp_object_cache']->set($key, $data, $group, (int) $expire); }
function wp_cache_set_multiple(array $data, $group = '', $expire = 0) { return $GLOBALS['wp_object_cache']->set_multiple($data, $group, $expire); }
function wp_cache_get($key, $group = '', $force = false, &$found = null) { return $GLOBALS['wp_object_cache']->get($key, $group, $force, $found); }
function wp_cache_get_multiple($keys, $group = '', $force = false) { return $GLOBALS['wp_object_cache']->get_multiple($keys, $group, $force); }
function wp_cache_delete($key, $group = '') { return $GLOBALS['wp_object_cache']->delete($key, $group); }
function wp_cache_delete_multiple(array $keys, $group = '') { return $GLOBALS['wp_object_cache']->delete_multiple($keys, $group); }
function wp_cache_incr($key, $offset = 1, $group = '') { return $GLOBALS['wp_object_cache']->incr($key, $offset, $group); }
function wp_cache_decr($key, $offset = 1, $group = '') { return $GLOBALS['wp_object_cache']->decr($key, $offset, $group); }
function wp_cache_flush() { return $GLOBALS['wp_object_cache']->flush(); }
function wp_cache_flush_runtime() { return $GLOBALS['wp_object_cache']->flush_runtime(); }
function wp_cache_flush_group($group) { return $GLOBALS['wp_object_cache']->flush_group($group); }
function wp_cache_supports($feature) { return in_array($feature, ['add_multiple', 'set_multiple', 'get_multiple', 'delete_multiple', 'flush_runtime', 'flush_group'], true); }
function wp_cache_close() { return true; }
function wp_cache_add_global_groups($groups) { $GLOBALS['wp_object_cache']->add_global_groups($groups); }
function wp_cache_add_non_persistent_groups($groups) { $GLOBALS['wp_object_cache']->add_non_persistent_groups($groups); }
function wp_cache_switch_to_blog($blog_id) { $GLOBALS['wp_object_cache']->switch_to_blog($blog_id); }
function wp_cache_reset() { $GLOBALS['wp_object_cache']->reset(); }
