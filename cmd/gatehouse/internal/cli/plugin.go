package cli

import (
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

// PluginVerb is what follows kubectl when this program is its plugin.
const PluginVerb = "gatehouse"

// programName returns the name of this program by its file.
func programName(file string) string { return strings.TrimSuffix(filepath.Base(file), ".exe") }

// DisplayName returns what a user types to call this program, by its file: kubectl-gatehouse is a plugin of kubectl.
func DisplayName(file string) string {
	if programName(file) == "kubectl-"+PluginVerb {
		return "kubectl " + PluginVerb
	}
	return PluginVerb
}

// showAs makes the help of a command and its subcommands name the program so. Usage lines are those of cobra.
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
