<!doctype html>
<html <?php language_attributes(); ?>>
<head><meta charset="<?php bloginfo('charset'); ?>"><?php wp_head(); ?></head>
<body <?php body_class(); ?>>
<h1><a href="<?php echo esc_url(home_url('/')); ?>"><?php bloginfo('name'); ?></a></h1>
<p>News from the harbor</p>
<?php while (have_posts()) : the_post(); ?>
<article><h2><?php the_title(); ?></h2><?php the_content(); ?></article>
<?php endwhile; wp_footer(); ?>
</body>
</html>
