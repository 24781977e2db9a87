"""Expressions by subject, after the sections of the CEL specification and Kubernetes' libraries.

Go's order of maps is random, so expressions sort lists of a map's keys or values.
"""

from __future__ import annotations

from typing import Any, Final

VARIABLES: Final[dict[str, Any]] = {
    "object": {
        "apiVersion": "kubevirt.io/v1alpha1",
        "kind": "VirtualMachine",
        "metadata": {"name": "testvm", "namespace": "default", "labels": {"app": "db", "tier": "back"}, "annotations": {}, "generation": 3},
        "spec": {
            "running": True,
            "replicas": 2,
            "ratio": 0.5,
            "memory": "512Mi",
            "disks": [{"name": "a", "size": 10}, {"name": "b", "size": 20, "readOnly": True}, {"name": "c"}],
            "empty": [],
            "nothing": None,
            "numbers": [3, 1, 2],
        },
    },
    "params": {"data": {"max": "3", "names": "a,b,c"}, "limit": 2},
}

LITERALS: Final = (
    """
1
-1
0x1F
-0x1f
9223372036854775807
-9223372036854775808
9223372036854775808
18446744073709551615u
18446744073709551616u
1u
0xFFu
1.5
-1.5
1e3
1.5e-3
.5
.5e2
1.
1e
'a'
"a"
'''a'b"c'''
\"\"\"x
y\"\"\"
'\\n\\t\\r\\a\\b\\f\\v\\\\\\'\\"\\`\\?'
'\\x41\\u0041\\U00000041\\101'
'\\ud800'
'\\q'
'\\8'
r'\\n'
R"\\d+"
b'abc'
b'\\xff\\377'
b'\\u0041'
br'\\n'
rb'\\n'
'ÄÖ😀'
b'Ä'
true
false
null
[]
[1, 2, 3]
[1, 2,]
{}
{'a': 1}
{'a': 1, 'b': 2,}
{1: 'a', 2u: 'b'}
{1: 'a', 1: 'b'}
{'a': 1, 'a': 2}
{true: 1, false: 2}
{1.5: 1}
[1, 'a']
[dyn(1), dyn('a')]
// a comment
1 // a comment
(1)
((1))
""".replace('\\"\\"\\"x\ny', '"""x y')
    .strip()
    .splitlines()
)

SYNTAX: Final = """
1 +
)
a b
foo
foo(1)
object.
object.1
object.'a'
1 + + 2
- - 1
--1
---1
!!true
!true
-(-1)
-1u
!1
true &&
? 1
true ? 1
true ? 1 : 2
true ? false ? 1 : 2 : 3
false ? 1 : true ? 2 : 3
if
var
object.if
object.namespace
object.metadata.namespace
in
1 in [1]
object.in
.object.spec.running
1 == 1 == true
1 < 2 == true
a.b(c)
size()
size(1, 2)
has(object)
has(object.spec)
has(object['spec'])
[1].map(x)
[1].map(x.y, 1)
[1].all(1, true)
@
#
'unterminated
"unterminated
1 2
object[1
{1}
{'a' 1}
object.spec?.running
object.?spec
object[?'spec']
object.?spec.?running
[?optional.of(1)]
{?'a': optional.of(1)}
[?1]
cel.bind(x, 1, x)
math.greatest(1, 2)
""".strip().splitlines()

ARITHMETIC: Final = """
1 + 2
9223372036854775807 + 1
-9223372036854775808 - 1
-9223372036854775807 - 1
9223372036854775807 * 2
-(-9223372036854775808)
5 / 2
-5 / 2
5 / -2
-9223372036854775808 / -1
1 / 0
0 / 0
5 % 3
-5 % 3
5 % -3
1 % 0
1u + 2u
1u - 2u
18446744073709551615u + 1u
18446744073709551615u * 2u
5u / 2u
5u % 3u
1u / 0u
1u % 0u
1.5 + 2.5
1.0 / 0.0
-1.0 / 0.0
0.0 / 0.0
1e308 * 10.0
5.0 - 7.5
1 + 1u
1 + 1.0
dyn(1) + dyn(1.0)
dyn(1) + dyn('a')
'a' + 'b'
b'a' + b'b'
[1] + [2]
'a' + 1
[1] + [dyn('a')]
-1.5
-dyn('a')
1 + 2 * 3 - 4 / 2 % 3
(1 + 2) * 3
'a' + 'b' + 'c' + 'd'
object.spec.replicas + 1
object.spec.replicas * object.spec.ratio
object.spec.ratio * 2.0
""".strip().splitlines()

COMPARISON: Final = """
1 == 1
1 == 2
1 != 2
1 == 1.0
dyn(1) == 1.0
dyn(1) == dyn(1u)
dyn(1) == dyn('1')
dyn(1) == dyn(true)
dyn(null) == dyn(1)
null == null
object.spec.nothing == null
object.spec.running == null
1 < 2
1 < 1.5
1u < 2
1 <= 1u
2.5 > 2
dyn(1) < dyn('a')
'a' < 'b'
'Z' < 'a'
'ä' > 'z'
b'a' < b'b'
false < true
true < false
true <= true
duration('1s') < duration('2s')
timestamp('2020-01-01T00:00:00Z') < timestamp('2021-01-01T00:00:00Z')
[1] < [2]
[1, 2] == [1, 2]
[1, 2] == [2, 1]
[1, 2] == [1.0, 2.0]
dyn([1, 2]) == [1.0, 2.0]
[[1], [2]] == [[1], [2]]
{'a': 1} == {'a': 1}
{'a': 1, 'b': 2} == {'b': 2, 'a': 1}
{'a': 1} == {'a': 2}
{'a': 1} == {'b': 1}
{'a': [1]} == {'a': [1]}
dyn({1: 'a'}) == dyn({1u: 'a'})
dyn([1]) == dyn({'a': 1})
0.0 / 0.0 == 0.0 / 0.0
0.0 / 0.0 != 0.0 / 0.0
0.0 / 0.0 < 1.0
0.0 == -0.0
9223372036854775807 == 9223372036854775807
dyn(9223372036854775807) == dyn(9223372036854775807.0)
9007199254740993 < 9007199254740992.0
18446744073709551615u > 9223372036854775807
1 in [1, 2]
3 in [1, 2]
1.0 in [1, 2]
dyn(1.0) in [1, 2]
'a' in ['a', 'b']
'a' in {'a': 1}
'b' in {'a': 1}
1 in {1: 'a'}
dyn(1u) in {1: 'a'}
1 in dyn(1)
'app' in object.metadata.labels
'x' in object.metadata.labels
'a' in object.spec.disks.map(d, d.name)
1 in object.metadata.labels
type(1) == int
type(1u) == uint
type(1.0) == double
type('a') == string
type(b'a') == bytes
type(true) == bool
type(null) == null_type
type([]) == list
type({}) == map
type(type(1)) == type
type(int) == type
type(duration('1s')) == google.protobuf.Duration
type(timestamp(0)) == google.protobuf.Timestamp
type(optional.none()) == optional_type
type(ip('1.2.3.4')) == net.IP
type(cidr('1.2.3.0/24')) == net.CIDR
type(object) == map
type(1) == type('a')
optional.of(1) == optional.of(1)
optional.of(1) == optional.of(2)
optional.none() == optional.none()
optional.of(1) == optional.none()
""".strip().splitlines()

LOGIC: Final = """
true && true
true && false
false || true
true || 1 / 0 > 0
1 / 0 > 0 || true
1 / 0 > 0 || false
false && 1 / 0 > 0
1 / 0 > 0 && false
1 / 0 > 0 && true
1 / 0 > 0 || 1 / 0 > 0 || true
true && 1
dyn(1) && true
dyn(1) && false
dyn('a') || true
dyn('a') || false
!dyn(1)
dyn(1) ? 1 : 2
true ? 1 : 1 / 0
false ? 1 : 1 / 0
1 / 0 > 0 ? 1 : 2
true ? 1 : 'a'
true ? dyn(1) : dyn('a')
true && true && true && false || true && !false
""".strip().splitlines()

SELECTION: Final = """
object.spec.running
object.spec.replicas
object.spec.none
object.none.none
object.spec.disks[0].name
object.spec.disks[3]
object.spec.disks[-1]
object.spec.disks[0u].name
object.spec.disks[dyn(1.0)].name
object.spec.disks[dyn(1.5)].name
object.spec.disks['a']
object.spec['running']
object['spec']['running']
object.spec[1]
object.spec.running.foo
object.spec.nothing.foo
has(object.spec.running)
has(object.spec.none)
has(object.none.foo)
has(object.spec.running.foo)
has(object.spec.nothing)
has(object.spec.nothing.foo)
has(object.spec.disks[0].size)
has(object.spec.disks[2].size)
has({'a': 1}.a)
has({'a': 1}.b)
has(object.metadata.labels.app) && object.metadata.labels.app == 'db'
{'a': 1}.a
{'a': 1}['a']
{1: 'a'}[1]
{1: 'a'}[dyn(1u)]
{1: 'a'}[dyn(1.0)]
{1: 'a'}[dyn(1.5)]
{true: 'a'}[true]
{true: 'a', false: 'b'}[false]
{'a': 1}['b']
[1, 2][0]
[1, 2][2]
[[1, 2], [3]][0][1]
'abc'[0]
object.?spec.?running.orValue(false)
object.?spec.?none.orValue(false)
object.?none.?none.orValue('x')
object.?none.none.none.orValue('x')
object.?spec.running
object.?spec.none
object[?'spec'].?replicas
object.spec.disks[?0].?name
object.spec.disks[?5].?name.orValue('z')
object.spec.disks[?5].hasValue()
object.spec.?nothing
object.spec.?nothing.?foo
object.spec.?running.?foo
has(object.?spec.running)
has(object.?none.running)
{'a': {'b': 1}}.?a.b
{'a': {'b': 1}}.?a[?'b']
{'a': {'b': 1}}[?'x'].b
optional.of(1).value()
optional.none().value()
optional.of(1).hasValue()
optional.none().hasValue()
optional.ofNonZeroValue(0)
optional.ofNonZeroValue('')
optional.ofNonZeroValue([])
optional.ofNonZeroValue({})
optional.ofNonZeroValue(null)
optional.ofNonZeroValue(false)
optional.ofNonZeroValue(0.0)
optional.ofNonZeroValue(0u)
optional.ofNonZeroValue(1)
optional.ofNonZeroValue('a')
optional.ofNonZeroValue(duration('0s'))
optional.of(1).or(optional.of(2))
optional.none().or(optional.of(2))
optional.none().or(optional.none())
optional.of(1).orValue(1 / 0)
optional.none().orValue(2)
optional.of(1).optMap(x, x + 1)
optional.none().optMap(x, x + 1)
optional.of(1).optFlatMap(x, optional.of(x + 1))
optional.of(1).optFlatMap(x, optional.none())
optional.of([1]).optMap(l, l.map(x, x * 2))
optional.unwrap([optional.of(1), optional.none()])
[optional.of(1), optional.none()].unwrapOpt()
[?optional.of(1), ?optional.none(), 3]
{?'a': optional.of(1), ?'b': optional.none()}
[?object.?spec.?replicas]
object.spec.numbers.first()
object.spec.numbers.last()
object.spec.empty.first()
[1, 2, 3].first()
[].last()
""".strip().splitlines()

LOOPS: Final = """
[1, 2, 3].all(x, x > 0)
[1, 2, 3].all(x, x > 1)
[].all(x, x > 1)
[1, 0].all(x, 1 / x > 0)
[1, 0, -1].all(x, 1 / x > 0)
[1, 2, 3].exists(x, x > 2)
[1, 2, 3].exists(x, x > 3)
[].exists(x, true)
[0, 1].exists(x, 1 / x > 0)
[0, -1].exists(x, 1 / x > 0)
[1, 2, 3].exists_one(x, x > 2)
[1, 2, 3].exists_one(x, x > 1)
[1, 2, 3].existsOne(x, x > 2)
[0, 1].exists_one(x, 1 / x > 0)
[1, 2, 3].map(x, x * 2)
[1, 2, 3].map(x, x > 1, x * 2)
[1, 0].map(x, 1 / x)
[].map(x, x)
[1, 2, 3].filter(x, x > 1)
[1, 0].filter(x, 1 / x > 0)
['a', 'b'].map(x, x + x)
{'a': 1}.all(k, k == 'a')
{'a': 1, 'b': 2}.exists(k, k == 'b')
{'a': 1}.map(k, k + k)
{'a': 1}.filter(k, k == 'a')
object.spec.disks.all(d, has(d.size))
object.spec.disks.exists(d, has(d.size) && d.size > 10)
object.spec.disks.filter(d, has(d.readOnly)).map(d, d.name)
object.spec.disks.map(d, d.size)
object.spec.disks.map(d, d.?size.orValue(0))
object.spec.disks.exists_one(d, d.name == 'b')
object.spec.disks.all(d, object.spec.disks.exists_one(e, e.name == d.name))
object.metadata.labels.all(k, object.metadata.labels[k].size() < 5)
object.spec.running.all(x, true)
[[1, 2], [3]].map(l, l.map(x, x + 1))
[1, 2].map(x, [3, 4].map(x, x))
[1, 2].map(x, [3, 4].map(y, x * y))
[1, 2, 3].all(i, v, i < v)
[1, 2, 3].exists(i, v, i == 2 && v == 3)
[1, 2, 3].existsOne(i, v, i == v - 1)
[1, 2, 3].exists_one(i, v, v == 2)
[1, 2, 3].transformList(i, v, i + v)
[1, 2, 3].transformList(i, v, i > 0, i + v)
{'a': 1}.transformList(k, v, k + string(v))
{'a': 1, 'b': 2}.transformMap(k, v, v * 2)
{'a': 1, 'b': 2}.transformMap(k, v, k == 'a', v * 2)
[1, 2].transformMap(i, v, v * 2)
{'a': 1}.transformMapEntry(k, v, {string(v): k})
{'a': 1, 'b': 1}.transformMapEntry(k, v, {string(v): k})
{'a': 1, 'b': 2}.transformMapEntry(k, v, v > 1, {string(v): k})
{'a': 1, 'b': 2}.all(k, v, v > 0)
{'a': 1, 'b': 2}.exists(k, v, k == 'b' && v == 2)
[1, 2, 3].all(i, i, i > 0)
[1, 2].all(x, dyn('a'))
[3, 1, 2].sortBy(x, x)
[3, 1, 2].sortBy(x, -x)
['b', 'a'].sortBy(x, x)
object.spec.disks.sortBy(d, d.name).map(d, d.name)
[].sortBy(x, x)
""".strip().splitlines()

CONVERSIONS: Final = """
int(1)
int(1u)
int(1.9)
int(-1.9)
int(1e19)
int(9223372036854775807.0)
int(-9223372036854775808.0)
int('12')
int('-12')
int('+12')
int(' 12')
int('1_2')
int('0x10')
int('9223372036854775808')
int('')
int('a')
int(true)
int(timestamp('2020-01-01T00:00:00Z'))
int(timestamp('1969-12-31T23:59:59.5Z'))
int(duration('1s'))
uint(1)
uint(-1)
uint(1.9)
uint(-1.0)
uint(2e19)
uint('12')
uint('-12')
uint('18446744073709551616')
double(1)
double(1u)
double('1.5')
double('1e3')
double('NaN')
double('Infinity')
double('-inf')
double('1e400')
double('a')
double('0x1p3')
double('')
string(1)
string(1u)
string(1.0)
string(1.5)
string(1e21)
string(1e20)
string(1e-7)
string(123456789.0)
string(0.000001)
string(-0.0)
string(1.0 / 0.0)
string(true)
string('a')
string(b'abc')
string(b'\\xff')
string(duration('1h30m'))
string(duration('1ms'))
string(duration('-1.5s'))
string(duration('1ns'))
string(timestamp('2020-01-01T00:00:00.5Z'))
string(timestamp('2020-01-01T01:00:00+01:00'))
string(null)
string([1])
bytes('äb')
bytes(b'a')
bool('true')
bool('T')
bool('1')
bool('yes')
bool('TRUE')
bool('tRuE')
bool(true)
dyn(1)
dyn([1])
type(dyn(1))
size('äb')
size(b'\\xff\\xfe')
size([1, 2])
size({'a': 1})
'abc'.size()
[1].size()
object.spec.disks.size()
size(object)
size(1)
duration('1h')
duration('1h2m3.5s')
duration('-1h')
duration('1')
duration('')
duration('0')
duration('1d')
duration('1.5h')
duration('.5s')
duration('1µs')
duration('300000h')
duration('3000000h')
duration(1)
timestamp('2020-02-29T12:30:45.123456789Z')
timestamp('2021-02-29T00:00:00Z')
timestamp('2020-01-01')
timestamp('2020-01-01T00:00:00')
timestamp('2020-01-01T00:00:00+25:00')
timestamp('2020-01-01t00:00:00z')
timestamp('0001-01-01T00:00:00Z')
timestamp('0000-01-01T00:00:00Z')
timestamp('9999-12-31T23:59:59Z')
timestamp(0)
timestamp(-62135596801)
timestamp(253402300800)
timestamp('2020-01-01T00:00:00Z') + duration('1h')
duration('1h') + timestamp('2020-01-01T00:00:00Z')
timestamp('2020-01-01T00:00:00Z') - duration('1h')
timestamp('2020-01-02T00:00:00Z') - timestamp('2020-01-01T00:00:00Z')
timestamp('9999-12-31T23:59:59Z') + duration('1s')
timestamp('9999-12-31T23:59:59Z') - timestamp('0001-01-01T00:00:00Z')
duration('1h') + duration('1m')
duration('1h') - duration('2h')
-duration('1h')
duration('1h') * 2
timestamp('2020-02-29T12:30:45.123Z').getFullYear()
timestamp('2020-02-29T12:30:45.123Z').getMonth()
timestamp('2020-02-29T12:30:45.123Z').getDate()
timestamp('2020-02-29T12:30:45.123Z').getDayOfMonth()
timestamp('2020-02-29T12:30:45.123Z').getDayOfWeek()
timestamp('2020-02-29T12:30:45.123Z').getDayOfYear()
timestamp('2020-02-29T12:30:45.123Z').getHours()
timestamp('2020-02-29T12:30:45.123Z').getMinutes()
timestamp('2020-02-29T12:30:45.123Z').getSeconds()
timestamp('2020-02-29T12:30:45.123Z').getMilliseconds()
timestamp('2020-02-29T23:30:45.123Z').getDate('Europe/Berlin')
timestamp('2020-02-29T23:30:45.123Z').getHours('+05:30')
timestamp('2020-02-29T23:30:45.123Z').getHours('-02:00')
timestamp('2020-02-29T23:30:45.123Z').getHours('05:30')
timestamp('2020-02-29T23:30:45.123Z').getHours('Mars/Base')
timestamp('2020-02-29T23:30:45.123Z').getHours('UTC')
duration('90m').getHours()
duration('90m').getMinutes()
duration('90.5s').getSeconds()
duration('90.5s').getMilliseconds()
duration('-90.5s').getSeconds()
""".strip().splitlines()

STRINGS: Final = """
'abc'.startsWith('ab')
'abc'.endsWith('bc')
'abc'.contains('b')
'abc'.contains('')
'abc'.matches('^a.c$')
'abc'.matches('b')
matches('abc', 'b')
'abc'.matches('(')
'abc'.matches('(?=a)')
'aaaa'.matches('^(a+)+$')
'ä'.matches('^.$')
'abc'.matches(object.metadata.name)
'a1b22'.find('[0-9]+')
'abc'.find('[0-9]+')
'a1b22'.findAll('[0-9]+')
'a1b22'.findAll('[0-9]+', 1)
'a1b22'.findAll('[0-9]+', 0)
'a1b22'.findAll('[0-9]+', -1)
'abc'.findAll('x*')
'abc'.findAll('b*')
'äöü'.findAll('.')
'tacocat'.charAt(3)
'tacocat'.charAt(7)
'tacocat'.charAt(8)
'tacocat'.charAt(-1)
'tacocat'.indexOf('a')
'tacocat'.indexOf('')
'tacocat'.indexOf('x')
'tacocat'.indexOf('a', 2)
'tacocat'.indexOf('a', -1)
'tacocat'.indexOf('a', 20)
'tacocat'.lastIndexOf('a')
'tacocat'.lastIndexOf('')
'tacocat'.lastIndexOf('at', 3)
'tacocat'.lastIndexOf('a', -1)
'tacocat'.lastIndexOf('a', 20)
'ab'.lastIndexOf('abc')
'TacoCÄt'.lowerAscii()
'TacoCät'.upperAscii()
'  a b '.trim()
'\\t\\u3000a\\n'.trim()
'a b a'.replace('a', 'x')
'a b a'.replace('a', 'x', 1)
'a b a'.replace('a', 'x', 0)
'a b a'.replace('', 'x')
'a b a'.replace('', 'x', 2)
'a b a'.replace('z', 'x')
'a,b,c'.split(',')
'a,b,c'.split(',', 2)
'a,b,c'.split(',', 0)
'a,b,c'.split(',', 1)
'a,b,c'.split(',', -1)
'abc'.split('')
'abc'.split('', 2)
''.split(',')
''.split('')
'tacocat'.substring(4)
'tacocat'.substring(0, 4)
'tacocat'.substring(4, 2)
'tacocat'.substring(-1)
'tacocat'.substring(7)
'tacocat'.substring(8)
'tacocat'.substring(0, 8)
['a', 'b'].join()
['a', 'b'].join('-')
[].join()
[1].join()
[dyn('a'), dyn(1)].join()
'abc'.reverse()
strings.quote('a"b\\n\\\\')
strings.quote('ä')
'%s %d %f %e %b %x %X %o %%'.format(['a', 1, 1.5, 1.5, 5, 255, 255, 8])
'%s'.format([1])
'%s'.format([1.0])
'%s'.format([1.5])
'%s'.format([true])
'%s'.format([null])
'%s'.format([[1, 'a', 1.5]])
'%s'.format([{'a': 1, 'b': 'c'}])
'%s'.format([b'abc'])
'%s'.format([duration('1h')])
'%s'.format([timestamp('2020-01-01T00:00:00Z')])
'%s'.format([type(1)])
'%s'.format([[type(1)]])
'%s'.format([object.metadata.labels])
'%d'.format([1u])
'%d'.format([1.5])
'%.2f'.format([1.2345])
'%f'.format([1234567.0])
'%.0f'.format([2.5])
'%f'.format([dyn(1)])
'%e'.format([1234.5])
'%.3e'.format([0.00012])
'%b'.format([true])
'%b'.format([-5])
'%x'.format(['abc'])
'%X'.format([b'\\xab'])
'%x'.format([-255])
'%o'.format([8u])
'%s'.format([])
'%s %s'.format([1])
'%z'.format([1])
'%'.format([1])
'x'.format([1])
'%s'.format([optional.of(1)])
""".strip().splitlines()

LISTS: Final = """
[1, 2, 3].isSorted()
[1, 3, 2].isSorted()
['a', 'b'].isSorted()
[].isSorted()
[2.0, 1.0].isSorted()
[1, 2, 3].sum()
[1.5, 2.5].sum()
[1u, 2u].sum()
[duration('1s'), duration('2s')].sum()
[].sum()
[9223372036854775807, 1].sum()
[1, 3, 2].max()
[1, 3, 2].min()
['b', 'a'].min()
[].max()
[1.5, 0.5].min()
[true, false].max()
[1, 2, 1].indexOf(1)
[1, 2, 1].lastIndexOf(1)
[1, 2, 1].indexOf(3)
['a'].indexOf('a')
object.spec.numbers.max()
object.spec.numbers.sum()
object.spec.numbers.isSorted()
object.spec.numbers.indexOf(2)
object.spec.numbers.sort()
[1, 2, 3, 4].slice(1, 3)
[1, 2, 3, 4].slice(0, 0)
[1, 2, 3, 4].slice(3, 1)
[1, 2, 3, 4].slice(-1, 1)
[1, 2, 3, 4].slice(0, 5)
[[1], [2, [3]]].flatten()
[[1], [2, [3]]].flatten(1)
[[1], [[2], [[3]]]].flatten(2)
[dyn(1), dyn([2]), dyn([[3]])].flatten(5)
[[1]].flatten(0)
[[1]].flatten(-1)
[3, 1, 2].sort()
['b', 'a'].sort()
[].sort()
[1.5, 0.5].sort()
[dyn(1), dyn('a')].sort()
[true, false].sort()
lists.range(3)
lists.range(0)
lists.range(-1)
[1, 2, 3].reverse()
[].reverse()
[1, 2, 1, 3, 2].distinct()
['a', 'b', 'a'].distinct()
[dyn(1), dyn(1.0), dyn(1u)].distinct()
sets.contains([1, 2], [1])
sets.contains([1, 2], [3])
sets.contains([], [])
sets.contains([1], [1, 1])
sets.equivalent([1, 2], [2, 1, 1])
sets.equivalent([1], [2])
sets.intersects([1, 2], [2, 3])
sets.intersects([1], [])
""".strip().splitlines()

LIBRARIES: Final = """
url('https://user:pw@example.com:80/path%20x?a=b&a=c&d=%41#frag')
url('https://example.com:80/').getHost()
url('https://example.com:80/').getHostname()
url('https://example.com:80/').getPort()
url('https://[::1]:80/').getHost()
url('https://[::1]:80/').getHostname()
url('https://[::1]').getPort()
url('https://example.com/a b').getEscapedPath()
url('https://example.com/a%20b').getEscapedPath()
url('https://example.com/ä').getEscapedPath()
url('https://example.com').getEscapedPath()
url('https://example.com/?a=b&a=c&d=%41&e').getQuery()
url('https://example.com/?k%20=v+w').getQuery()
url('HTTPS://example.com').getScheme()
url('/path').getScheme()
url('/path').getEscapedPath()
url('/path') == url('/path')
url('')
url('example.com')
url('../relative')
url(':foo')
url('https://a b.com')
url('https://example.com:port/')
url('https://exa%6dple.com')
url('https://[::1')
url('mailto:a@b.c')
url('https://example.com/%zz')
isURL('https://example.com')
isURL('/path')
isURL('path')
isURL('')
isURL('https://exa mple.com')
isURL('https://example.com:99999/')
isURL('https://example.com:x/')
isURL('http://')
isURL('a:b')
isURL('*')
isURL('https://us er@x')
isURL('//host/path')
ip('1.2.3.4')
ip('::1')
ip('2001:db8::1')
ip('01.2.3.4')
ip('1.2.3')
ip('::ffff:1.2.3.4')
ip('fe80::1%eth0')
ip('')
isIP('1.2.3.4')
isIP('1.2.3.256')
isIP('::1')
isIP('::ffff:1.2.3.4')
isIP('fe80::1%eth0')
ip.isCanonical('127.0.0.1')
ip.isCanonical('2001:DB8::1')
ip.isCanonical('2001:db8:0::1')
ip.isCanonical('x')
ip('1.2.3.4').family()
ip('::1').family()
ip('0.0.0.0').isUnspecified()
ip('127.0.0.1').isLoopback()
ip('127.1.2.3').isLoopback()
ip('::1').isLoopback()
ip('224.0.0.1').isLinkLocalMulticast()
ip('224.0.1.1').isLinkLocalMulticast()
ip('ff02::1').isLinkLocalMulticast()
ip('169.254.1.1').isLinkLocalUnicast()
ip('fe80::1').isLinkLocalUnicast()
ip('192.168.0.1').isGlobalUnicast()
ip('255.255.255.255').isGlobalUnicast()
ip('0.0.0.0').isGlobalUnicast()
ip('240.0.0.1').isGlobalUnicast()
ip('1.2.3.4') == ip('1.2.3.4')
ip('1.2.3.4') == ip('1.2.3.5')
string(ip('1.2.3.4'))
string(ip('2001:DB8:0:0::1'))
cidr('192.168.0.0/24')
cidr('192.168.0.1/24')
cidr('192.168.0.0')
cidr('192.168.0.0/33')
cidr('192.168.0.0/024')
cidr('::/0')
cidr('::ffff:1.2.3.4/100')
isCIDR('192.168.0.0/24')
isCIDR('192.168.0.0/x')
cidr('192.168.0.0/24').containsIP('192.168.0.5')
cidr('192.168.0.0/24').containsIP(ip('192.168.1.5'))
cidr('192.168.0.0/24').containsIP('::1')
cidr('192.168.0.0/24').containsIP('x')
cidr('192.168.0.0/16').containsCIDR('192.168.10.0/24')
cidr('192.168.0.0/24').containsCIDR('192.168.0.0/16')
cidr('192.168.0.0/16').containsCIDR(cidr('192.168.0.0/16'))
cidr('192.168.0.0/16').containsCIDR('2001:db8::/32')
cidr('192.168.0.7/24').ip()
cidr('192.168.0.7/24').ip().family()
cidr('192.168.0.7/24').masked()
cidr('192.168.0.7/24').masked() == cidr('192.168.0.0/24')
cidr('192.168.0.7/24').prefixLength()
string(cidr('192.168.0.7/24'))
quantity('1Gi')
quantity('1.5')
quantity('500m')
quantity('1e3')
quantity('1E3')
quantity('x')
quantity('')
quantity('1x')
quantity('-1Ki')
quantity('+1')
isQuantity('1Gi')
isQuantity('1ii')
isQuantity('20')
isQuantity('1 Gi')
quantity('50000000G').isInteger()
quantity('50k').isInteger()
quantity('9999999999999999999999999999G').isInteger()
quantity('1.5').isInteger()
quantity('1500m').isInteger()
quantity('1000m').isInteger()
quantity('1.0').isInteger()
quantity('50k').asInteger()
quantity('1.5').asInteger()
quantity('50k').asApproximateFloat()
quantity('1.5').asApproximateFloat()
quantity('100m').asApproximateFloat()
quantity('-5').sign()
quantity('0').sign()
sign(quantity('5'))
quantity('200M').compareTo(quantity('0.2G'))
quantity('50M').compareTo(quantity('50Mi'))
quantity('150Mi').isGreaterThan(quantity('100Mi'))
quantity('50M').isLessThan(quantity('100M'))
quantity('50k').add(quantity('20k'))
quantity('50k').add(20)
quantity('50k').sub(quantity('20k'))
quantity('50k').sub(20)
quantity('1Gi') == quantity('1024Mi')
quantity('1Gi') == quantity('1G')
quantity(object.spec.memory).isGreaterThan(quantity('256Mi'))
quantity('1') == dyn(1)
semver('1.2.3')
semver('1.2')
semver('v1.2.3')
semver('v1.2.3', true)
semver('1.2', true)
semver('01.2.3')
semver('01.02.03', true)
semver('1', true)
semver('1-rc', true)
semver('1.2.3-rc.1+build')
semver('1.2.3-')
semver('1.2.3+')
semver('1.2.3-01')
semver('1.2.3-a_b')
isSemver('1.2.3')
isSemver('1.2')
isSemver('v1.0', true)
semver('1.2.3').major()
semver('1.2.3').minor()
semver('1.2.3').patch()
semver('1.2.3').compareTo(semver('1.10.0'))
semver('1.2.3-rc.1').compareTo(semver('1.2.3'))
semver('1.2.3-rc.1').isLessThan(semver('1.2.3-rc.2'))
semver('1.2.3-1').isLessThan(semver('1.2.3-a'))
semver('1.2.3').isGreaterThan(semver('1.2.2'))
semver('1.2.3') == semver('1.2.3')
semver('1.2.3+a') == semver('1.2.3+b')
format.dns1123Label().validate('my-label')
format.dns1123Label().validate('My-Label')
format.dns1123Subdomain().validate('a.b')
format.dns1123Subdomain().validate('a..b')
format.dns1035Label().validate('a1')
format.dns1035Label().validate('1a')
format.dns1123LabelPrefix().validate('a-')
format.dns1123SubdomainPrefix().validate('a.b-')
format.dns1035LabelPrefix().validate('a-')
format.qualifiedName().validate('a.b/c')
format.qualifiedName().validate('a/b/c')
format.labelValue().validate('a')
format.labelValue().validate('a b')
format.uri().validate('https://x')
format.uri().validate('x')
format.uuid().validate('123e4567-e89b-12d3-a456-426614174000')
format.uuid().validate('x')
format.byte().validate('aGVsbG8=')
format.byte().validate('***')
format.date().validate('2021-01-01')
format.date().validate('2021-13-01')
format.datetime().validate('2021-01-01T00:00:00Z')
format.datetime().validate('x')
format.named('dns1123Label').hasValue()
format.named('nope').hasValue()
format.named('date').value().validate('2021-01-01').hasValue()
format.dns1123Label() == format.named('dns1123Label').value()
authorizer.group('').resource('pods').check('get').allowed()
authorizer.group('').resource('pods').check('list').allowed()
authorizer.group('').resource('pods').check('list').reason()
authorizer.group('').resource('pods').check('get').reason()
authorizer.group('').resource('pods').check('fail').errored()
authorizer.group('').resource('pods').check('fail').error()
authorizer.group('').resource('pods').check('get').error()
authorizer.group('apps').resource('deployments').subresource('scale').namespace('x').name('y').check('get').allowed()
authorizer.group('').resource('pods').fieldSelector('spec.nodeName=a').labelSelector('a=b').check('get').allowed()
authorizer.path('/healthz').check('get').allowed()
authorizer.path('')
authorizer.group('').resource(' ')
authorizer.serviceAccount('default', 'a').group('').resource('pods').check('get').allowed()
authorizer.serviceAccount('default', 'A b')
authorizer.serviceAccount('a.b', 'a')
[1, 2, 3].map(x, authorizer.group('').resource('pods').name(string(x)).check('get').allowed())
jsonpatch.escapeKey('a/b~c')
Object{}
Object{spec: Object.spec{replicas: 3}}
Object{metadata: Object.metadata{labels: {'a': 'b'}}}
Object{spec: Object.spec{?replicas: optional.of(3), ?other: optional.none()}}
Object{a: 1}.a
has(Object{a: 1}.b)
Foo{a: 1}
JSONPatch{op: 'add', path: '/a', value: 1}
[JSONPatch{op: 'add', path: '/a', value: Object.a{b: 1}}]
JSONPatch{op: 1}
JSONPatch{foo: 1}
JSONPatch{op: 'add'}.op
""".strip().splitlines()

POLICIES: Final = """
object.spec.replicas <= params.limit
object.spec.replicas <= int(params.data.max)
object.spec.disks.all(d, d.name in params.data.names.split(','))
!has(object.metadata.annotations) || object.metadata.annotations.all(k, !k.startsWith('kubernetes.io/'))
object.metadata.?labels[?'app'].orValue('') == 'db'
object.metadata.name.matches('^[a-z0-9-]+$') && object.metadata.name.size() < 64
object.spec.disks.filter(d, d.?size.orValue(0) > 15).size() == 1
quantity(object.spec.memory).compareTo(quantity('1Gi')) < 0
object.spec.running == false
has(object.spec.running) && object.spec.running
object.metadata.labels.map(k, k + '=' + object.metadata.labels[k]).sort()
'disk %s of %s'.format([object.spec.disks[0].name, object.metadata.name])
object.spec.disks.exists(d, has(d.readOnly) && d.readOnly) ? 'some are read-only' : 'none'
object.metadata.labels.transformMap(k, v, v.upperAscii())
object.spec.disks.map(d, d.name).isSorted()
sets.equivalent(object.spec.disks.map(d, d.name), params.data.names.split(','))
""".strip().splitlines()

SECTIONS: Final = {
    "literals": LITERALS,
    "syntax": SYNTAX,
    "arithmetic": ARITHMETIC,
    "comparison": COMPARISON,
    "logic": LOGIC,
    "selection": SELECTION,
    "loops": LOOPS,
    "conversions": CONVERSIONS,
    "strings": STRINGS,
    "lists": LISTS,
    "libraries": LIBRARIES,
    "policies": POLICIES,
}
