<?php
// The files of a folder for comparisons. Names may have any bytes, so they travel as base64. Links are not followed. What is mounted over
// a folder belongs to a release, and not to the site.
class TooLate extends Exception {}

function tree(string $dir, array $in): array {
	$until = microtime(true) + (float) ($in['seconds'] ?? 0);
	if (isset($in['digests'])) {
		$out = [];
		foreach (explode("\0", base64_decode($in['digests'])) as $file) {
			[$size, $name] = explode(' ', $file, 2);
			$out[] = microtime(true) < $until ? digest("$dir/$name", (int) $size) : null;
		}
		return ['digests' => $out];
	}
	$n = $bytes = $changed = 0;
	$page = '';
	$after = base64_decode($in['after'] ?? '');
	try {
		foreach (files($dir, '', $after === '' ? [] : explode('/', $after), mounted($dir) + array_fill_keys($in['without'] ?? [], true), $until) as $name => $is) {
			if (++$n > $in['most']) {
				return ['late' => true];
			}
			$bytes += $is['size'];
			$changed = max($changed, $is['mtime']);
			if (empty($in['names'])) {
				continue;
			}
			$page .= $is['size'] . ' ' . $name . "\0";
			if (strlen($page) > $in['page']) {
				return ['files' => base64_encode($page), 'more' => true];
			}
		}
	} catch (TooLate $e) {
		return ['late' => true];
	}
	return ['count' => $n, 'bytes' => $bytes, 'changed' => $changed, 'files' => base64_encode($page)];
}

// Files yields those below a folder by their names, in an order that stays, from the one after a path.
function files(string $dir, string $below, array $after, array $without, float $until): Generator {
	$entries = @scandir($below === '' ? $dir : "$dir/$below", SCANDIR_SORT_NONE) ?: [];
	sort($entries, SORT_STRING);
	foreach ($entries as $entry) {
		if (microtime(true) > $until) {
			throw new TooLate();
		}
		$order = $after ? strcmp($entry, $after[0]) : 1;
		if ($entry === '.' || $entry === '..' || $order < 0 || $order === 0 && count($after) === 1) {
			continue;
		}
		$name = $below === '' ? $entry : "$below/$entry";
		$is = @lstat("$dir/$name");
		$kind = $is ? $is['mode'] & 0170000 : 0;
		if ($kind === 0040000 && !isset($without[$name])) {
			yield from files($dir, $name, $order === 0 ? array_slice($after, 1) : [], $without, $until);
		} elseif ($kind === 0100000) {
			yield $name => $is;
		}
	}
}

// What is mounted below a folder, by its path there.
function mounted(string $dir): array {
	$out = [];
	foreach (@file('/proc/self/mountinfo') ?: [] as $line) {
		$at = preg_replace_callback('/\\\\([0-7]{3})/', fn($m) => chr(octdec($m[1])), explode(' ', $line)[4] ?? '');
		if (str_starts_with($at, "$dir/")) {
			$out[substr($at, strlen($dir) + 1)] = true;
		}
	}
	return $out;
}

function digest(string $file, int $size): ?string {
	$f = @fopen($file, 'rbn'); // a pipe in its place is not waited for
	$is = $f ? fstat($f) : false;
	if (!$is || ($is['mode'] & 0170000) !== 0100000) {
		return null;
	}
	$sum = hash_init('sha256');
	hash_update_stream($sum, $f, $size + 1); // it may have grown
	fclose($f);
	return substr(hash_final($sum), 0, 32);
}
