package convert

import "github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/manifest"

type mutation struct{ index int }

func (c *ruleConverter) mutate() ([]*mutation, error) {
	return nil, unsupported("mutate", "later", "a rule that mutates")
}
func (c *policyConverter) emitMutations(_ []*mutation, _ string, _ bool, _ []Result) {}
func (c *converter) exceptions()                                                     {}
func (c *converter) constraints()                                                    {}
func (c *converter) celPolicy(o *manifest.Object)                                    {}
