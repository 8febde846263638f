package console

// addLogin adds the page.
func (c *console) addLogin() {
	var parts []part
	words := []string{"token", "list"}
	switch {
	case !c.isOffline():
		if !c.InCluster { // whoami needs a kubeconfig
			parts = append(parts, c.commandPart("whoami", "Who you are", append([]string{"whoami"}, c.ClusterFlags.Arguments()...)...))
		}
		words = append(words, c.ClusterFlags.Arguments()...)
	case c.config != "":
		words = append(words, "--config", c.config)
	default:
		words = nil
	}
	if words != nil {
		parts = append(parts, c.commandPart("tokens", "Access tokens", words...))
	}
	c.addParts("GET /login", "/login", "Login", parts)
}
