package main

import (
	"os"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/lint"
	"github.com/gatehouse-dev/gatehouse/test/support/reference"
)

// TestReference holds docs/reference against what it is about. UPDATE_GOLDEN=1, as "make generate" has it, writes it anew.
func TestReference(t *testing.T) {
	const root, dir = "../../", "../../docs/reference"
	pages := reference.Pages{}
	for _, err := range []error{
		pages.AddCommands(cli.NewRoot(cli.Streams{In: strings.NewReader(""), Out: t.Output(), Err: t.Output()}, commands()...)),
		pages.AddKinds(root + "webhooks/api/v1alpha1"),
		pages.AddMetrics(root+"cmd", root+"certs"),
		pages.AddLogMessages(root+"cmd", root+"certs", root+"internal"),
		pages.AddConditions(root + "webhooks/api/v1alpha1/status.go"),
		pages.AddChartValues(root + "manifests/chart/gatehouse/values.yaml"),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	var codes []reference.LintCode
	for _, code := range lint.Codes() {
		codes = append(codes, reference.LintCode{Code: string(code), Explanation: lint.Explain(code)})
	}
	pages.AddLintCodes(codes)
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := pages.Write(dir); err != nil {
			t.Fatal(err)
		}
	}
	if err := pages.Compare(dir); err != nil {
		t.Error(err)
	}
}
