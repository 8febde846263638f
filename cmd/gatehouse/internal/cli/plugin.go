package cli

import (
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

// PluginVerb is what follows kubectl when this program is its plugin.
const PluginVerb = "gatehouse"

// completionProgram is the name by which kubectl calls this program to complete the command line of its plugin.
const completionProgram = "kubectl_complete-" + PluginVerb

// programName returns the name of this program by its file.
func programName(file string) string { return strings.TrimSuffix(filepath.Base(file), ".exe") }

// DisplayName returns what a user types to call this program, by its file: kubectl-gatehouse is a plugin of kubectl.
func DisplayName(file string) string {
	switch programName(file) {
	case "kubectl-" + PluginVerb, completionProgram:
		return "kubectl " + PluginVerb
	default:
		return PluginVerb
	}
}

// Arguments returns the arguments of a call of this program, from os.Args. kubectl calls completionProgram with the words of the command line
// and expects the answer that cobra's completion scripts expect of __complete.
func Arguments(call []string) []string {
	if programName(call[0]) == completionProgram {
		return append([]string{cobra.ShellCompRequestCmd}, call[1:]...)
	}
	return call[1:]
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
