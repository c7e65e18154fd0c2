<?php
// Slipway's way to the Redis of a site, which runs beside its PHP or is the operator's server: one persistent
// connection for each worker, with everything that comes from it bounded in size and in time.
namespace Slipway;

// Redis does not answer as it should: what is left of the request goes on without it.
final class RedisLost extends \Exception {}

final class Redis {
	public const MAX_VALUE = 1 << 20;  // of one value; larger ones are not sent
	private const MAX_REPLY = 16 << 20; // of all that one call gets
	public static int $silence = 200000; // microseconds without a byte
	public static float $longest = 2.0;  // seconds of one call
	private const OFF = 2;              // seconds without another try, after silence

	/** @var resource */
	private $stream;
	private bool $open = false;
	private bool $silent = false;
	private bool $amid = false; // a request was ended in the middle of an answer
	private float $until = 0;
	private int $left = 0;
	private string $prefix;

	private function __construct($stream, string $prefix) {
		$this->stream = $stream;
		$this->prefix = $prefix;
	}

	// connect returns a connection that answers, or null. What this request changes without one is
	// not in Redis: when it has ended, nobody finds what is there now.
	public static function connect(): ?self {
		$socket = (string) getenv('SLIPWAY_REDIS');
		$off = self::own() . '/off';
		$epoch = self::epoch();
		if (!self::paused($epoch) && !(($since = @filemtime($off)) && $since > time() - self::OFF && $since <= time())) {
			for ($try = 0; $try < 2; $try++) { // what an ended request left in a connection is no answer
				$stream = @stream_socket_client('unix://' . $socket, $no, $why, self::$silence / 1e6, STREAM_CLIENT_CONNECT | STREAM_CLIENT_PERSISTENT);
				if (!$stream) {
					break;
				}
				stream_set_timeout($stream, intdiv(self::$silence, 1000000), self::$silence % 1000000);
				stream_set_chunk_size($stream, 1 << 16);
				$redis = new self($stream, self::shared() . $epoch);
				$redis->open = true;
				try {
					$token = bin2hex(random_bytes(8));
					if ($redis->call(['ECHO', $token]) === $token) {
						return $redis;
					}
					$redis->close();
				} catch (RedisLost $e) {
					if ($redis->silent) {
						break;
					}
				}
			}
		}
		self::forget_at_end();
		return null;
	}

	// paused reports whether other programs of the site change its database at the moment, such as a
	// command, which have no part in this Redis.
	public static function paused(?string $epoch = null): bool {
		return strncmp($epoch ?? self::epoch(), 'off', 3) === 0;
	}

	// epoch is the beginning of every key. It changes when the database has been changed past
	// Redis: by Slipway, which says so in a file of its own, or by a request that had lost Redis.
	private static function epoch(): string {
		$epoch = '';
		foreach (explode(':', (string) getenv('SLIPWAY_REDIS_EPOCHS')) as $file) {
			$epoch .= substr((string) @file_get_contents($file, false, null, 0, 64), 0, 64) . '.';
		}
		return $epoch;
	}

	// shared is what all keys begin with on the operator's server; empty where the site has a Redis of its own.
	public static function shared(): string { return (string) getenv('SLIPWAY_REDIS_PREFIX'); }

	private static function own_epoch(): string {
		$files = explode(':', (string) getenv('SLIPWAY_REDIS_EPOCHS'));
		return end($files);
	}

	// own is a directory of the site's, for as long as its PHP runs.
	public static function own(): string { return dirname(self::own_epoch()); }

	public static function forget(): void {
		if ($f = @fopen(self::own_epoch(), 'c')) { // it keeps its size: a full disk is no hindrance
			@fwrite($f, bin2hex(random_bytes(8)));
			fclose($f);
		}
	}

	// forget_at_end forgets after all others have done what they do at the end of a request.
	public static function forget_at_end(): void {
		static $noted = false;
		if ($noted) {
			return;
		}
		$noted = true;
		register_shutdown_function(fn() => register_shutdown_function([self::class, 'forget']));
	}

	public function prefix(): string { return $this->prefix; }
	public function works(): bool { return $this->open; }

	// moved reports whether the epoch is another one by now, and goes over to that.
	public function moved(): bool {
		$was = $this->prefix;
		$this->prefix = self::shared() . self::epoch();
		return $this->prefix !== $was;
	}

	// lose gives Redis up for the rest of the request. One that is silent is spared for a while.
	public function lose(string $why): RedisLost {
		if ($this->open) {
			$this->silent = !empty(stream_get_meta_data($this->stream)['timed_out']) || $this->until > 0 && microtime(true) > $this->until;
			if ($this->silent) {
				@touch(self::own() . '/off');
			}
			$this->close();
			self::forget();
			self::forget_at_end();
		}
		return new RedisLost($why);
	}

	private function close(): void {
		$this->open = false;
		@stream_socket_shutdown($this->stream, STREAM_SHUT_RDWR);
		@fclose($this->stream);
	}

	// call sends one command and returns its answer.
	public function call(array $command) {
		return $this->calls([$command])[0];
	}

	// calls sends commands together and returns their answers: a string, an integer, null, a list,
	// or false for an error.
	public function calls(array $commands): array {
		if (!$this->open) {
			throw new RedisLost('no connection');
		}
		if ($this->amid) {
			throw $this->lose('an answer was not read to its end');
		}
		$this->amid = true;
		$this->until = microtime(true) + self::$longest;
		$this->left = self::MAX_REPLY;
		$text = '';
		foreach ($commands as $command) {
			$text .= '*' . count($command) . "\r\n";
			foreach ($command as $word) {
				$text .= '$' . strlen((string) $word) . "\r\n" . $word . "\r\n";
			}
		}
		for ($sent = 0, $all = strlen($text); $sent < $all; $sent += $n) {
			$n = @fwrite($this->stream, $sent === 0 ? $text : substr($text, $sent, 1 << 16));
			if (!$n || microtime(true) > $this->until) {
				throw $this->lose('it does not read');
			}
		}
		$answers = [];
		foreach ($commands as $_) {
			$answers[] = $this->answer(0);
		}
		$this->amid = false;
		return $answers;
	}

	private function answer(int $depth) {
		$line = @fgets($this->stream, 1024);
		if ($line === false || substr($line, -2) !== "\r\n" || microtime(true) > $this->until) {
			throw $this->lose('no answer');
		}
		$rest = substr($line, 1, -2);
		switch ($line[0]) {
			case '+':
				return $rest;
			case '-':
				return false;
			case ':':
				return (int) $rest;
			case '$':
				$n = (int) $rest;
				if ($n < 0) {
					return null;
				}
				return substr($this->bytes($n + 2), 0, -2);
			case '*':
				$n = (int) $rest;
				if ($n > 10000 || $depth > 1) {
					break;
				}
				$list = [];
				for ($i = 0; $i < $n; $i++) {
					$list[] = $this->answer($depth + 1);
				}
				return $list;
		}
		throw $this->lose('an answer that Redis does not give');
	}

	private function bytes(int $n): string {
		if ($n > 2 * self::MAX_VALUE || ($this->left -= $n) < 0) {
			throw $this->lose('too long an answer');
		}
		$text = '';
		while (strlen($text) < $n) {
			$more = @fread($this->stream, $n - strlen($text));
			if ($more === false || $more === '' || microtime(true) > $this->until) {
				throw $this->lose('no answer');
			}
			$text .= $more;
		}
		return $text;
	}
}

// use_object_cache gives WordPress an object cache that outlives the request, and reports
// whether it did: a drop-in of the site's own goes before ours, and without Redis WordPress's own
// holds for the request.
function use_object_cache(): bool {
	if (file_exists(WP_CONTENT_DIR . '/object-cache.php') || function_exists('wp_cache_init')) {
		if (@mkdir(Redis::own() . '/told')) { // once for each start
			error_log('The object cache of Slipway is not used: wp-content has an object-cache.php of its own');
		}
		Redis::forget_at_end();
		return false;
	}
	$redis = Redis::connect();
	if (!$redis) {
		return false;
	}
	$GLOBALS['slipway_redis'] = $redis;
	require_once __DIR__ . '/object-cache.php';
	wp_using_ext_object_cache(true);
	return true;
}
