package install

import (
	"fmt"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/install/registration"
)

// The values of --for with --static, besides forConfiguration: the files that the two
// plugins of kube-apiserver read.
const (
	forMutating   = string(registration.StaticMutating)
	forValidating = string(registration.StaticValidating)
)

// staticPurposes returns the values of --for with --static.
func staticPurposes() []string { return []string{forMutating, forValidating, forConfiguration} }

// checkStatic checks the flags that cannot be combined with --static.
func (f *manifestsFlags) checkStatic(problem func(string)) {
	if !f.static {
		return
	}
	if f.onHosts() {
		problem("--static and " + f.hostsFlag() + " exclude each other (hint: run the command once for each, and merge their AdmissionConfigurations)")
	}
	if f.service != "" {
		problem("--static and --service exclude each other: kube-apiserver accepts only URLs in webhook configurations from files (hint: --url https://HOST:PORT)")
	}
	if f.certificates != "" {
		problem("--static and --certificates exclude each other: Gatehouse cannot write a renewed CA into files of kube-apiserver (hint: --ca-file)")
	}
	for _, flag := range []struct {
		given bool
		name  string
	}{
		{f.serviceAccount != "", "--service-account"},
		{f.countPods, "--count-pods"},
		{len(f.parts) > 0, "--part"},
	} {
		if flag.given {
			problem(flag.name + " is not for --static, which prints only webhook configurations")
		}
	}
}

// staticText returns the files of --static that --for selects, and a note if they must be
// saved one by one.
func (f *manifestsFlags) staticText(o registration.Options, documents []registration.Document) ([]byte, []string, error) {
	var notes []string
	switch f.purpose {
	case forConfiguration:
		documents = []registration.Document{registration.StaticConfiguration(o, documents)}
	case forMutating, forValidating:
		documents = registration.OnlyStatic(documents, registration.StaticPlugin(f.purpose))
	default:
		if len(documents) > 1 {
			notes = append(notes, fmt.Sprintf("save these as two files: kube-apiserver does not start if a directory has both kinds (hint: --for %s and --for %s print one each)", forMutating, forValidating))
		}
	}
	if len(documents) == 0 {
		return nil, nil, fmt.Errorf("--for %s: nothing to print with these flags", f.purpose)
	}
	text, err := f.render("", documents)
	return text, notes, err
}
