<?php
// Runs what is due, as wp-cron.php does, and says when the next is.
require __DIR__ . '/boot.php';
define('DOING_CRON', true);
wordpress();
// All events are one option, which is written whole: what a visitor's request scheduled while an
// event ran must be in it.
function fresh(): void {
	foreach (['alloptions', 'cron'] as $key) {
		wp_cache_delete($key, 'options');
	}
}
// A clone runs no event by which it would charge or mail the customers of another site: they stay.
function held($hook): bool { return (bool) apply_filters('slipway_pauses', false, $hook); }
$ran = 0;
$until = time() + 120;
foreach (wp_get_ready_cron_jobs() as $time => $hooks) {
	foreach ($hooks as $hook => $events) {
		if (held($hook)) {
			continue;
		}
		foreach ($events as $event) {
			if (time() > $until) {
				break 3;
			}
			fresh();
			if ($event['schedule']) {
				wp_reschedule_event($time, $event['schedule'], $hook, $event['args']);
			}
			wp_unschedule_event($time, $hook, $event['args']);
			do_action_ref_array($hook, $event['args']);
			$ran++;
		}
	}
}
fresh();
$all = _get_cron_array() ?: [];
ksort($all);
$next = 0;
foreach (array_keys($all) as $time) {
	if (is_int($time) && array_filter(array_keys($all[$time]), fn($hook) => !held($hook))) {
		$next = $time;
		break;
	}
}
$blogs = [];
if (is_multisite() && empty($in['blog'])) { // events of the other sites run in requests of their own, with their plugins
	foreach (get_sites(['number' => 500, 'site__not_in' => [get_current_blog_id()], 'deleted' => 0, 'archived' => 0, 'spam' => 0]) as $site) {
		$times = array_filter(array_keys((array) get_blog_option($site->blog_id, 'cron', [])), 'is_int');
		if ($times) {
			$blogs[] = ['id' => (int) $site->blog_id, 'domain' => $site->domain, 'path' => $site->path, 'next' => min($times)];
		}
	}
}
answer(['ran' => $ran, 'next' => $next, 'blogs' => $blogs]);
