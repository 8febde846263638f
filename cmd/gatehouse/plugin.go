package main

import (
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

// displayName is how people call this program, by the name of its file: a program
// called kubectl-gatehouse is a plugin of kubectl.
func displayName(file string) string {
	if strings.TrimSuffix(filepath.Base(file), ".exe") == "kubectl-"+pluginVerb {
		return "kubectl " + pluginVerb
	}
	return pluginVerb
}

// showAs makes the help of a command and its subcommands call the program by this
// name. Usage lines are cobra's own affair.
func showAs(cmd *cobra.Command, name string) {
	call := strings.NewReplacer(
		"  gatehouse ", "  "+name+" ",
		"| gatehouse ", "| "+name+" ",
		"$(gatehouse ", "$("+name+" ",
		"'gatehouse ", "'"+name+" ",
	)
	cmd.Example, cmd.Long = call.Replace(cmd.Example), call.Replace(cmd.Long)
	for _, sub := range cmd.Commands() {
		showAs(sub, name)
	}
}
