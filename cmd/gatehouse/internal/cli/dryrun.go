package cli

import (
	"errors"

	"github.com/spf13/cobra"
)

// DryRun is the value of --dry-run, with the meaning of kubectl.
type DryRun string

const (
	// DryRunNone changes what the command is for.
	DryRunNone DryRun = "none"
	// DryRunClient sends no change.
	DryRunClient DryRun = "client"
	// DryRunServer sends changes for the API server to check, with dryRun=All. It persists none of them.
	DryRunServer DryRun = "server"
)

// Active reports whether nothing is to be changed.
func (d *DryRun) Active() bool { return *d == DryRunClient || *d == DryRunServer }

// Server reports whether the API server is to check changes without persisting them.
func (d *DryRun) Server() bool { return *d == DryRunServer }

// String implements pflag.Value.
func (d *DryRun) String() string { return string(*d) }

// Type implements pflag.Value.
func (*DryRun) Type() string { return "string" }

// Set implements pflag.Value.
func (d *DryRun) Set(text string) error {
	switch value := DryRun(text); value {
	case DryRunNone, DryRunClient, DryRunServer:
		*d = value
		return nil
	default:
		return errors.New("must be client, server or none")
	}
}

// AddDryRunFlag adds --dry-run to a command that writes to a cluster.
func AddDryRunFlag(cmd *cobra.Command, value *DryRun) {
	*value = DryRunNone
	flags := cmd.Flags()
	flags.Var(value, "dry-run", "change nothing and show what would be done: client sends no change, server has the API server check each change; without a value client")
	flags.Lookup("dry-run").NoOptDefVal = string(DryRunClient)
	flags.Lookup("dry-run").DefValue = "" // help shows none
	_ = cmd.RegisterFlagCompletionFunc("dry-run", cobra.FixedCompletions([]string{string(DryRunClient), string(DryRunServer), string(DryRunNone)}, cobra.ShellCompDirectiveNoFileComp))
}
