package dashboard

// siteRoutes is every route of one site, and of making one: /new and /sites/{id}/….
func (d *Dashboard) siteRoutes() []route {
	return nil
}
