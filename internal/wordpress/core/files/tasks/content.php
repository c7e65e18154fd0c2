<?php
// How much content there is, when it changed last, and how much of it changed since a time. Each
// query is bounded in time; what couldn't be counted is null.
function content(int $since, bool $compare): array {
	global $wpdb;
	$wpdb->suppress_errors(true); // a server without this setting counts without a bound
	$wpdb->query('SET SESSION max_statement_time = 5');
	$time = fn($text) => (int) (strtotime($text . ' UTC') ?: 0);
	$count = function (string $table, string $column, string $where, array $more) use ($wpdb, $since, $time) {
		$x = $wpdb->get_row($wpdb->prepare("SELECT COUNT(*) AS n, MAX($column) AS changed, COALESCE(SUM($column > %s), 0) AS newer FROM $table WHERE $where", gmdate('Y-m-d H:i:s', $since)));
		return $x ? $more + ['count' => (int) $x->n, 'changed' => $time((string) $x->changed), 'newer' => $since ? (int) $x->newer : 0] : null;
	};
	$posts = $wpdb->get_results($wpdb->prepare("SELECT post_type, COUNT(*) AS n, MAX(post_modified_gmt) AS changed, SUM(post_modified_gmt > %s) AS newer FROM {$wpdb->posts}
		WHERE post_status NOT IN ('auto-draft', 'trash') AND post_type NOT IN ('revision', 'customize_changeset', 'oembed_cache', 'user_request', 'shop_order_placehold')
		GROUP BY post_type ORDER BY n DESC, post_type LIMIT 50", gmdate('Y-m-d H:i:s', $since)));
	$list = null;
	if ($wpdb->last_error === '') {
		$list = [];
		foreach ($posts ?: [] as $x) {
			$type = get_post_type_object($x->post_type);
			$list[$x->post_type] = ['type' => $x->post_type, 'name' => (string) ($type->labels->name ?? $x->post_type), 'count' => (int) $x->n, 'changed' => $time((string) $x->changed), 'newer' => $since ? (int) $x->newer : 0];
		}
		if (get_option('woocommerce_custom_orders_table_enabled') === 'yes') { // orders in tables of their own
			unset($list['shop_order']);
			$orders = $count("{$wpdb->prefix}wc_orders", 'date_updated_gmt', "type = 'shop_order' AND status NOT IN ('auto-draft', 'trash', 'wc-checkout-draft')", ['type' => 'shop_order', 'name' => (string) (get_post_type_object('shop_order')->labels->name ?? 'Orders')]);
			if ($orders) {
				$list['shop_order'] = $orders;
			}
		}
	}
	$out = [
		'posts' => $list === null ? null : array_values($list),
		'comments' => $count($wpdb->comments, 'comment_date_gmt', "comment_approved NOT IN ('spam', 'trash', 'post-trashed')", []),
		'users' => $count($wpdb->users, 'user_registered', '1 = 1', []),
		'options' => $compare ? options() : null,
	];
	$wpdb->query('SET SESSION max_statement_time = DEFAULT');
	return $out;
}

// Digests of the options by name, without what every site has of its own: its address, caches and
// schedules. null: they couldn't be read.
function options(): ?array {
	global $wpdb;
	$host = (string) wp_parse_url(home_url(), PHP_URL_HOST);
	$out = [];
	for ($after = '', $n = 0; $n < 10; $n++) {
		$rows = $wpdb->get_results($wpdb->prepare("SELECT option_name, IF(LENGTH(option_value) > 16384, MD5(REPLACE(option_value, %s, '@')), option_value) AS value FROM {$wpdb->options}
			WHERE option_name > %s AND option_name NOT LIKE '\\_transient\\_%%' AND option_name NOT LIKE '\\_site\\_transient\\_%%' AND option_name NOT LIKE 'slipway\\_%%'
			AND option_name NOT IN ('siteurl', 'home', 'cron', 'rewrite_rules', 'blog_public', 'recently_activated', 'recently_edited', 'user_count', 'auto_updater.lock', 'core_updater.lock')
			ORDER BY option_name LIMIT 500", $host, $after));
		if ($wpdb->last_error !== '') {
			return null;
		}
		foreach ($rows as $x) {
			$after = $x->option_name;
			$out[$after] = substr(md5(preg_replace('/\bs:\d+:"/', 's:"', str_replace($host, '@', (string) $x->value)) ?? ''), 0, 12);
		}
		if (count($rows) < 500) {
			break;
		}
	}
	return $out;
}
