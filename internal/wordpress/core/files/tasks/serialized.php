<?php
// Replaces text in values that may be serialized by PHP, at any depth. Strings are rewritten
// with their lengths and nothing is unserialized: no class is loaded, and what can't be read
// as serialized is text.

// replaced returns a value with each of the pairs [from, to] replaced, counting how often.
function replaced(string $value, array $pairs, int &$count, int $depth = 0): string {
	if ($depth < 20 && preg_match('/^(?:[aO]:\d+:|s:\d+:")/', $value) && strpbrk(substr($value, -1), ';}')) {
		$at = 0;
		$n = 0;
		$out = piece($value, $at, $pairs, $n, $depth, 0);
		if ($out !== null && $at === strlen($value)) {
			$count += $n;
			return $out;
		}
	}
	foreach ($pairs as [$from, $to]) {
		$value = str_replace($from, $to, $value, $n);
		$count += $n;
	}
	return $value;
}

// piece reads one serialized value at $at and returns it rewritten; null: it is none.
function piece(string $s, int &$at, array $pairs, int &$count, int $depth, int $level): ?string {
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
		$text = replaced($text, $pairs, $count, $depth + 1);
		return 's:' . strlen($text) . ':"' . $text . '";';
	}
	if (preg_match('/\GE:(\d+):"/', $s, $m, 0, $at)) {
		$text = text($s, $at, $m, '";');
		return $text === null ? null : $m[0] . $text . '";';
	}
	if (preg_match('/\Ga:(\d+):\{/', $s, $m, 0, $at)) {
		$at += strlen($m[0]);
		return members($s, $at, $m[0], (int) $m[1], $pairs, $count, $depth, $level);
	}
	if (preg_match('/\GO:(\d+):"/', $s, $m, 0, $at)) {
		$class = text($s, $at, $m, '":');
		if ($class === null || !preg_match('/\G(\d+):\{/', $s, $n, 0, $at)) {
			return null;
		}
		$at += strlen($n[0]);
		return members($s, $at, $m[0] . $class . '":' . $n[0], (int) $n[1], $pairs, $count, $depth, $level);
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

function members(string $s, int &$at, string $out, int $n, array $pairs, int &$count, int $depth, int $level): ?string {
	for (; $n > 0; $n--) {
		$none = 0;
		$key = piece($s, $at, [], $none, $depth, $level + 1); // names stay
		$value = $key === null ? null : piece($s, $at, $pairs, $count, $depth, $level + 1);
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
