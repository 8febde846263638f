package lint

import (
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/typecheck"
)

// The minor versions of Kubernetes whose functions are compared: those supported while 1.37 is the latest, and the next one.
const (
	oldestServer = 35
	newestServer = 38
)

// newEnvironments returns the environments in which API servers compile new expressions, the oldest first. A server uses that of
// the version before, so that it can be rolled back.
func newEnvironments() ([]*cel.Env, error) {
	var all []*cel.Env
	for minor := oldestServer; minor <= newestServer; minor++ {
		set, err := typecheck.Environment(version.MajorMinor(1, uint(minor-1)))
		if err != nil {
			return nil, err
		}
		all = append(all, set.NewExpressionsEnv())
	}
	return all, nil
}

// lintPortability reports expressions that call functions that API servers of some
// versions do not have.
func (s *subject) lintPortability() {
	if !s.portable {
		return
	}
	environments, err := s.linter.environments()
	if err != nil {
		return // The library does not know one of the versions.
	}
	for _, e := range s.expressions {
		var refusing []string
		var missing ast.Expr
		for i, env := range environments {
			walk(e.plain.AST.Expr(), func(part ast.Expr) {
				if part.Kind() != ast.CallKind || env.HasFunction(part.AsCall().FunctionName()) {
					return
				}
				if missing == nil {
					missing = part
				}
				if server := version.MajorMinor(1, uint(oldestServer+i)).String(); !slices.Contains(refusing, server) {
					refusing = append(refusing, server)
				}
			})
		}
		if missing != nil {
			s.reportAt(CELVersion, e, missing.ID(), "do without while such an API server is to take the policy",
				"there is no function %s in Kubernetes %s", missing.AsCall().FunctionName(), strings.Join(refusing, ", "))
		}
	}
}
