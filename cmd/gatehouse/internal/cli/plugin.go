package cli

import (
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

// PluginVerb is what follows kubectl when this program is its plugin.
const PluginVerb = "gatehouse"

// DisplayName is how people call this program, by the name of its file: a program
// called kubectl-gatehouse is a plugin of kubectl.
func DisplayName(file string) string {
	if strings.TrimSuffix(filepath.Base(file), ".exe") == "kubectl-"+PluginVerb {
		return "kubectl " + PluginVerb
	}
	return PluginVerb
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
