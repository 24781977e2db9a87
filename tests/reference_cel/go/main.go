// Evaluates CEL expressions in Kubernetes' own environment: one JSON request a line in, one JSON answer a line out.
package main

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	celval "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/library"
	"k8s.io/apiserver/pkg/cel/mutation"
	"k8s.io/apiserver/pkg/cel/mutation/dynamic"
)

type request struct {
	Expression string         `json:"expression"`
	Variables  map[string]any `json:"variables"`
}

type answer struct {
	Compile string `json:"compile,omitempty"`
	Error   string `json:"error,omitempty"`
	Value   any    `json:"value,omitempty"`
	Cost    uint64 `json:"cost"`
}

// onlyGets allows the verb get.
type onlyGets struct{}

func (onlyGets) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	switch a.GetVerb() {
	case "get":
		return authorizer.DecisionAllow, "getting is fine", nil
	case "fail":
		return authorizer.DecisionNoOpinion, "", errors.New("nobody knows")
	}
	return authorizer.DecisionNoOpinion, "no", nil
}

func newEnv() (*cel.Env, error) {
	set, err := environment.MustBaseEnvSet(version.MajorMinor(1, 36)).Extend(environment.VersionedOptions{
		IntroducedVersion: version.MajorMinor(1, 0),
		EnvOptions: []cel.EnvOption{
			cel.Variable("object", cel.DynType),
			cel.Variable("params", cel.DynType),
			cel.Variable("authorizer", library.AuthorizerType),
			common.ResolverEnvOption(&mutation.DynamicTypeResolver{}),
			environment.UnversionedLib(library.JSONPatch),
		},
	}, environment.StrictCostOpt)
	if err != nil {
		return nil, err
	}
	return set.Env(environment.StoredExpressions)
}

func evaluate(env *cel.Env, in request) (out answer) {
	defer func() {
		if failure := recover(); failure != nil {
			out = answer{Error: fmt.Sprintf("panic: %v", failure)}
		}
	}()
	ast, issues := env.Compile(in.Expression)
	if issues != nil && issues.Err() != nil {
		return answer{Compile: issues.Err().Error()}
	}
	program, err := env.Program(ast, cel.InterruptCheckFrequency(100))
	if err != nil {
		return answer{Compile: err.Error()}
	}
	variables := map[string]any{
		"authorizer": library.NewAuthorizerVal(&user.DefaultInfo{Name: "somebody"}, onlyGets{}),
		"object":     in.Variables["object"],
		"params":     in.Variables["params"],
	}
	value, details, err := program.ContextEval(context.Background(), variables)
	if details != nil && details.ActualCost() != nil {
		out.Cost = *details.ActualCost()
	}
	if err != nil {
		out.Error = err.Error()
		return out
	}
	out.Value = encode(value)
	return out
}

func tagged(tag string, value any) any { return map[string]any{"t": tag, "v": value} }

func encode(value ref.Val) any {
	switch v := value.(type) {
	case types.Null:
		return tagged("null", nil)
	case types.Bool:
		return tagged("bool", bool(v))
	case types.Int:
		return tagged("int", strconv.FormatInt(int64(v), 10))
	case types.Uint:
		return tagged("uint", strconv.FormatUint(uint64(v), 10))
	case types.Double:
		return tagged("double", strconv.FormatFloat(float64(v), 'g', -1, 64))
	case types.String:
		return tagged("string", string(v))
	case types.Bytes:
		return tagged("bytes", base64.StdEncoding.EncodeToString(v))
	case types.Duration:
		return tagged("duration", strconv.FormatInt(int64(v.Duration), 10))
	case types.Timestamp:
		return tagged("timestamp", fmt.Sprintf("%d.%09d", v.Unix(), v.Nanosecond()))
	case *types.Optional:
		if !v.HasValue() {
			return tagged("none", nil)
		}
		return tagged("some", encode(v.GetValue()))
	case celval.IP:
		return tagged("ip", v.String())
	case celval.CIDR:
		return tagged("cidr", v.String())
	case celval.Quantity:
		return tagged("quantity", v.AsDec().String())
	case *celval.Quantity:
		return tagged("quantity", v.AsDec().String())
	case celval.URL:
		return tagged("url", v.String())
	case celval.Semver:
		return tagged("semver", fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Patch))
	case *dynamic.ObjectVal:
		native, err := v.ConvertToNative(mapType)
		if err != nil {
			return tagged("unconvertible", nil)
		}
		text, _ := json.Marshal(native)
		return tagged("object", v.Type().TypeName()+string(text))
	case *mutation.JSONPatchVal:
		return tagged("patch", v.Op+" "+v.Path)
	case ref.Type:
		return tagged("type", v.TypeName())
	case traits.Lister:
		items := []any{}
		for it := v.Iterator(); it.HasNext() == types.True; {
			items = append(items, encode(it.Next()))
		}
		return tagged("list", items)
	case traits.Mapper:
		items := []any{}
		for it := v.Iterator(); it.HasNext() == types.True; {
			key := it.Next()
			items = append(items, []any{encode(key), encode(v.Get(key))})
		}
		return tagged("map", items)
	}
	return tagged("opaque", value.Type().TypeName())
}

func main() {
	env, err := newEnv()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(make([]byte, 1<<20), 1<<26)
	out := bufio.NewWriter(os.Stdout)
	encoder := json.NewEncoder(out)
	for in.Scan() {
		var asked request
		if err := decode(in.Bytes(), &asked); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		if err := encoder.Encode(evaluate(env, asked)); err != nil {
			os.Exit(1)
		}
		if err := out.Flush(); err != nil {
			os.Exit(1)
		}
	}
}
