<?php
// Replaces text in values that may be serialized by PHP, at any depth. Strings are rewritten
// with their lengths and nothing is unserialized: no class is loaded, and what can't be read
// as serialized is text.

// texts returns a function that replaces each of the pairs [from, to] in a text, counting how often.
function texts(array $pairs): Closure {
	return function (string $text, int &$count) use ($pairs): string {
		foreach ($pairs as [$from, $to]) {
			$text = str_replace($from, $to, $text, $n);
			$count += $n;
		}
		return $text;
	};
}

// addresses is texts for addresses, in one pass: the first pair that matches wins, and what was replaced is not looked at again. An
// address ends where its host or the last folder of its path does: https://shop.example is not in https://shop.example.au, nor in
// https://shop.example:8443, and //shop.example is not in ftp://shop.example.
function addresses(array $pairs): Closure {
	$to = $forms = [];
	foreach ($pairs as [$from, $new]) {
		$to[strtolower($from)] ??= $new;
		$forms[] = (stripos($from, 'http') === 0 ? '' : '(?<!:|%3a|%253a)') . preg_quote($from, '~');
	}
	$any = '~(?:' . implode('|', $forms) . ')(?![a-z0-9_-]|\.[a-z0-9]|(?::|%3a|%253a)[0-9])~i';
	if (@preg_match($any, '') === false) {
		throw new RuntimeException('The addresses are too many to be replaced at once');
	}
	return function (string $text, int &$count) use ($to, $any): string {
		$out = preg_replace_callback($any, fn($m) => $to[strtolower($m[0])], $text, -1, $n);
		$count += $out === null ? 0 : $n;
		return $out ?? $text;
	};
}

// replaced returns a value with its texts replaced by a function of the kind above.
function replaced(string $value, Closure $swap, int &$count, int $depth = 0): string {
	if ($depth < 20 && preg_match('/^(?:[aO]:\d+:|s:\d+:")/', $value) && strpbrk(substr($value, -1), ';}')) {
		$at = 0;
		$n = 0;
		$out = piece($value, $at, $swap, $n, $depth, 0);
		if ($out !== null && $at === strlen($value)) {
			$count += $n;
			return $out;
		}
	}
	return $swap($value, $count);
}

// piece reads one serialized value at $at and returns it rewritten; null: it is none.
function piece(string $s, int &$at, Closure $swap, int &$count, int $depth, int $level): ?string {
	if ($level > 200 || $at >= strlen($s)) {
		return null;
	}
	if (preg_match('/\G(?:N|[bir]:-?\d+|R:\d+|d:[-+0-9.eEINFA]+);/', $s, $m, 0, $at)) {
		$at += strlen($m[0]);
		return $m[0];
	}
	if (preg_match('/\Gs:(\d+):"/', $s, $m, 0, $at)) {
		$text = text($s, $at, $m, '";');
		if ($text === null) {
			return null;
		}
		$text = replaced($text, $swap, $count, $depth + 1);
		return 's:' . strlen($text) . ':"' . $text . '";';
	}
	if (preg_match('/\GE:(\d+):"/', $s, $m, 0, $at)) {
		$text = text($s, $at, $m, '";');
		return $text === null ? null : $m[0] . $text . '";';
	}
	if (preg_match('/\Ga:(\d+):\{/', $s, $m, 0, $at)) {
		$at += strlen($m[0]);
		return members($s, $at, $m[0], (int) $m[1], $swap, $count, $depth, $level);
	}
	if (preg_match('/\GO:(\d+):"/', $s, $m, 0, $at)) {
		$class = text($s, $at, $m, '":');
		if ($class === null || !preg_match('/\G(\d+):\{/', $s, $n, 0, $at)) {
			return null;
		}
		$at += strlen($n[0]);
		return members($s, $at, $m[0] . $class . '":' . $n[0], (int) $n[1], $swap, $count, $depth, $level);
	}
	if (preg_match('/\GC:(\d+):"/', $s, $m, 0, $at)) { // written by its class: nobody else knows how
		$class = text($s, $at, $m, '":');
		if ($class === null || !preg_match('/\G(\d+):\{/', $s, $n, 0, $at)) {
			return null;
		}
		$body = text($s, $at, $n, '}');
		return $body === null ? null : $m[0] . $class . '":' . $n[0] . $body . '}';
	}
	return null;
}

// text reads so many bytes as the match says, and what must follow them.
function text(string $s, int &$at, array $m, string $end): ?string {
	$start = $at + strlen($m[0]);
	$length = (int) $m[1];
	if ($length > strlen($s) || substr($s, $start + $length, strlen($end)) !== $end) {
		return null;
	}
	$at = $start + $length + strlen($end);
	return substr($s, $start, $length);
}

function members(string $s, int &$at, string $out, int $n, Closure $swap, int &$count, int $depth, int $level): ?string {
	for (; $n > 0; $n--) {
		$none = 0;
		$key = piece($s, $at, fn(string $name) => $name, $none, $depth, $level + 1); // names stay
		$value = $key === null ? null : piece($s, $at, $swap, $count, $depth, $level + 1);
		if ($value === null) {
			return null;
		}
		$out .= $key . $value;
	}
	if (substr($s, $at, 1) !== '}') {
		return null;
	}
	$at++;
	return $out . '}';
}
