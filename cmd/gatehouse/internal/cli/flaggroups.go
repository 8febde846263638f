package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// FlagGroup is a heading of a command's help, and the names of its flags.
type FlagGroup struct {
	Title string
	Flags []string
}

// GroupFlags has the help of a command show its flags below headings, as kube-apiserver's does. A flag without a group comes last.
func GroupFlags(cmd *cobra.Command, groups ...FlagGroup) {
	cobra.AddTemplateFunc("flagGroups", func(all *pflag.FlagSet) string {
		var b strings.Builder
		shown := map[string]bool{}
		section := func(title string, has func(*pflag.Flag) bool) {
			flags := pflag.NewFlagSet(title, pflag.ContinueOnError)
			flags.SortFlags = false
			all.VisitAll(func(f *pflag.Flag) {
				if has(f) {
					flags.AddFlag(f)
					shown[f.Name] = true
				}
			})
			if flags.HasAvailableFlags() {
				fmt.Fprintf(&b, "%s flags:\n%s\n", title, flags.FlagUsages())
			}
		}
		for _, group := range groups {
			names := map[string]bool{}
			for _, name := range group.Flags {
				names[name] = true
			}
			section(group.Title, func(f *pflag.Flag) bool { return names[f.Name] })
		}
		section("Other", func(f *pflag.Flag) bool { return !shown[f.Name] })
		return strings.TrimRight(b.String(), "\n")
	})
	cmd.SetUsageTemplate(strings.Replace(cmd.UsageTemplate(), "Flags:\n{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}", "{{flagGroups .LocalFlags}}", 1))
}
