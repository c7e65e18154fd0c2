package dashboard

// operatorRoutes is every route of what the operator sees.
func (d *Dashboard) operatorRoutes() []route {
	return nil
}
