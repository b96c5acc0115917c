"""Words that turn a task into its opposite: a curated table.

A row is two sides with a bar between them. The words of a side mean the same here, each is opposed
to every word of the other side. `turn_on` is the phrase "turn on", also with words between. Forms
need no rows of their own where `stems` finds them (enables, enabled, enabling); nouns do.

Own choice of words, made for what people ask agents to do: systems, data, code, accounts, money,
and general English. A pair belongs here if a task with the one word is answered wrongly by what
was written for the other, whatever stands around it.
"""

from __future__ import annotations

from functools import cache

from subconscious_mcp.stems import phrase_key, rows

_FIRM = """
enable activate turn_on switch_on re_enable reenable | disable deactivate turn_off switch_off inactivate
activation enablement | deactivation disablement
enabled active | disabled inactive
on | off
start launch begin boot boot_up start_up startup bring_up spin_up power_on power_up kick_off fire_up | stop halt
    terminate shut_down shutdown kill bring_down spin_down power_off power_down quit end
begin | end finish
beginning | end
starting | ending
startup | shutdown
boot | shutdown
resume unpause continue | pause suspend hibernate
proceed continue | stop halt abort
run running execute | stop stopped
running | down
alive live | dead
up | down
upper | lower
upward upwards | downward downwards
upstream | downstream
upgrade update bump | downgrade
upgrade update bump | roll_back rollback revert
roll_out rollout deploy release ship | roll_back rollback undeploy revert
deploy | undeploy
deployment rollout | rollback
commit | roll_back rollback abort
apply | revert undo unapply
do | undo
undo | redo
forward | backward backwards back
forwards | backwards
migrate | roll_back rollback
add append insert include put_in | remove delete drop erase take_out exclude
adding addition insertion | removal deletion
attach | detach
attachment | detachment
create make build generate establish set_up provision | delete remove destroy drop erase tear_down demolish
    deprovision
creation provisioning | deletion destruction removal deprovisioning
setup | teardown
construct build | destroy demolish tear_down
constructor | destructor
store save keep retain preserve persist | delete discard remove erase throw_away drop lose
restore recover undelete | delete remove destroy
back_up backup | restore
archive | unarchive
archived | unarchived
install | uninstall remove
installation | uninstallation removal
mount | unmount umount
load | unload
load | dump
load | save
plug plug_in | unplug
connect link join pair | disconnect unlink unpair detach
connected online | disconnected offline
connection | disconnection
online | offline
bind | unbind
register enroll sign_up subscribe | unregister deregister unenroll unsubscribe
registration enrollment | deregistration
subscribe | unsubscribe
subscription | cancellation
follow | unfollow
join enter | leave exit quit
log_in login sign_in log_on logon | log_out logout sign_out log_off sign_off logoff
open reopen | close shut
opened | closed
opening | closing closure
lock | unlock
locked | unlocked
lock | release
acquire | release
allocate | deallocate free
allocation | deallocation
reserve | release
block ban blacklist blocklist denylist | unblock unban allow whitelist allowlist permit
allow permit grant authorize whitelist allowlist accept approve let | deny forbid prohibit reject refuse disallow
    revoke block blacklist prevent
allowed permitted | forbidden denied prohibited disallowed
allowlist whitelist | denylist blacklist blocklist
grant give | revoke withdraw take_away
accept approve confirm agree | reject decline refuse deny disapprove disagree
acceptance approval | rejection refusal
approved accepted | rejected declined denied
confirm | cancel
submit | withdraw cancel
schedule book reserve | cancel unschedule
booking reservation | cancellation
assign | unassign
promote | demote
promotion | demotion
encrypt encipher | decrypt decipher
encryption | decryption
encrypted | plaintext unencrypted
encode | decode
encoder | decoder
encoding | decoding
compress zip pack | decompress uncompress unzip unpack extract inflate
compression | decompression
compressed | uncompressed raw
serialize marshal | deserialize unmarshal
serialization | deserialization
tokenize | detokenize
mask hide conceal redact | unmask reveal show expose display unhide
hide collapse | show expand
hidden invisible | visible shown
visible | invisible
collapse fold | expand unfold
minimize | maximize
shrink reduce decrease lower lessen diminish cut downsize contract | grow increase raise enlarge expand boost
    heighten upsize
increase raise grow gain rise go_up | decrease reduce lower drop fall decline lessen cut shrink go_down lose
increment | decrement
ascending asc ascend | descending desc descend
ascending | reverse reversed
rise climb | fall sink
scale_up | scale_down
scale_out | scale_in
scale_up scale_out | scale_in scale_down
speed_up accelerate | slow_down decelerate
fast quick rapid | slow
faster quicker fastest quickest | slower slowest
speedup | slowdown
push | pull
push | pop
pull_request | issue
upload | download
import | export
importer | exporter
inbound incoming ingress | outbound outgoing egress
input | output
inputs | outputs
stdin | stdout stderr
stdout | stderr
in | out
inner | outer
inside within | outside
inside | outside
interior | exterior
internal | external
indoor indoors | outdoor outdoors
entry entrance | exit
entry_point | exit_point
zoom_in | zoom_out
opt_in | opt_out
check_in | check_out
read | write
reader | writer
readable | unreadable
read_only readonly | writable read_write write_only
reading | writing
listen | speak talk
send transmit emit publish | receive
sender | receiver recipient
publish produce | consume subscribe
publisher producer | consumer subscriber
publish | unpublish
published | draft unpublished
producer | consumer
request | response
client | server
client_side | server_side
frontend front_end | backend back_end
front | back rear
foreground | background
caller | callee
parent | child
ancestor | descendant
parent | children
superclass base_class | subclass derived_class
master primary leader main | slave secondary replica follower standby
primary | secondary
active | passive standby
local locally | remote remotely
on_premise on_prem onprem self_hosted | cloud saas hosted managed
local | global
locally | globally
public | private
publicly | privately
private | shared
shared | dedicated exclusive
global | regional
static | dynamic
statically | dynamically
mutable | immutable
stateful | stateless
constant | variable
permanent persistent | temporary transient ephemeral
permanently | temporarily
persistent | volatile
volatile | nonvolatile
sync synchronous | async asynchronous
synchronously | asynchronously
blocking | nonblocking
serial sequential | parallel concurrent
sequentially | concurrently
series | parallel
single | multiple many several
single | double
single_threaded | multi_threaded multithreaded
singular | plural
individual | bulk batch
one_by_one | in_bulk
batch | streaming
batch | realtime real_time
stream | batch
online | batch
automatic auto automatically | manual manually
automated | manual
implicit implicitly | explicit explicitly
lazy lazily | eager eagerly
strict | lenient loose
strong | weak
stronger strongest | weaker weakest
strongly | weakly
strengthen | weaken
hard | soft
hard_link | symlink soft_link symbolic_link
hardware | software
physical | virtual logical
real | fake mock dummy
real | virtual
real | imaginary
actual | expected
valid | invalid
correct right | incorrect wrong
correctly | incorrectly wrongly
true | false
positive | negative
success | failure
succeed pass | fail
successful | failed unsuccessful
successfully | unsuccessfully
passing | failing
passed | failed
safe secure | unsafe insecure
safe | dangerous
secure | vulnerable
trusted | untrusted
trust | distrust
healthy | unhealthy
stable | unstable
stable | nightly beta experimental
available | unavailable
known | unknown
signed | unsigned
tracked | untracked
stage | unstage
staged | unstaged
stash | unstash
merge | split
merge | rebase
merge | unmerge
combine join concatenate merge | split separate divide
union | intersection
inner_join | outer_join left_join right_join full_join
inner_join | cross_join
left_join | right_join
union | difference
include | exclude
included | excluded
including | excluding
inclusive | exclusive
inclusion | exclusion
select check tick | deselect unselect uncheck untick
checked | unchecked
select | insert
select | update
insert | update
insert | delete
update | delete
insert | select
index | unindex
sort | shuffle
sorted ordered | unsorted unordered random
ordered | unordered
normalize | denormalize
nullable | required
optional | required mandatory compulsory obligatory
voluntary | compulsory mandatory obligatory
part_time | full_time
null | nonnull
empty blank | full filled
empty | nonempty
fill | drain empty
whitelisted | blacklisted
horizontal horizontally | vertical vertically
row rows | column columns
left | right
leftmost | rightmost
top | bottom
topmost | bottommost
above over | below under beneath underneath
over | under
overflow | underflow
before | after
before | during
during | after
within | after
earlier | later
early | late
earliest oldest | latest newest
previous prior preceding last | next following upcoming subsequent
past | future
first | last final
initial | final
prefix | suffix
new | existing current
free vacant empty | taken occupied
shorten | lengthen extend prolong
enqueue | dequeue
escalate | resolve deescalate
advance | arrears
promote | roll_back rollback
open unpaid outstanding overdue | paid
leading | trailing
prepend | append
prologue | epilogue
header | footer
head | tail
preprocess | postprocess
precondition | postcondition
pre | post
am | pm
morning | evening night
morning | afternoon
afternoon | evening
day daytime | night nighttime
dawn sunrise | dusk sunset
summer | winter
weekday | weekend
new | old
newer newest | older oldest
modern | legacy ancient
young | old
younger youngest | older oldest
big large huge | small little tiny
bigger larger biggest largest | smaller smallest
long | short
longer longest | shorter shortest
longterm long_term | shortterm short_term
tall | short
high | low
higher highest | lower lowest
highly | lowly
wide broad | narrow
widen broaden | narrow
wider widest | narrower narrowest
thick | thin
thicker thickest | thinner thinnest
deep | shallow
deeper deepest | shallower
heavy | light lightweight
heavier heaviest | lighter lightest
dark | light bright
darker darkest | lighter brighter lightest brightest
darken dim | brighten lighten
hot warm | cold cool
hotter warmer hottest warmest | colder cooler coldest coolest
heat warm_up | cool cool_down
heating | cooling
freeze | thaw unfreeze melt
frozen | thawed unfrozen
wet | dry
soft | hard
easy simple | hard difficult complex complicated
easier easiest simpler simplest | harder hardest
simple | compound
simplify | complicate
cheap cheaper cheapest inexpensive | expensive costly costliest
rich wealthy | poor
good | bad
good | evil
better | worse
best | worst
improve enhance | worsen degrade
improvement | degradation regression
advantage advantages pro pros benefit benefits | disadvantage disadvantages drawback drawbacks con cons
strength strengths | weakness weaknesses
maximum max most | minimum min least
maximal | minimal
maximise | minimise
more | less fewer
many | few
much | little
majority | minority
at_least | at_most
greater_than more_than over | less_than fewer_than under
greater | less smaller
gt gte | lt lte
exceed | undershoot
ceiling | floor
ceil | floor
upper_bound | lower_bound
always | never
often frequently | rarely seldom
frequent common | rare uncommon
common | unique
everything | nothing
everyone everybody | nobody
everywhere | nowhere
same equal identical | different unequal
similar | different dissimilar
similarity | difference
equal | unequal
match | mismatch
even | odd
whole | partial
full complete | partial incomplete
fully completely | partially partly
complete | incomplete
full | incremental differential
incremental | differential
open_source | closed_source proprietary
free | paid commercial
free | busy
free | used occupied
credit | debit
credit_card | debit_card
deposit pay_in | withdraw withdrawal cash_out
pay_in | pay_out
payment | refund
charge | refund
pay | refund
income revenue | expense expenses expenditure
incoming | outgoing
profit | loss
gain | lose
gain | loss
win | lose
winner | loser
earn | spend
save | spend waste
buy purchase | sell
buyer purchaser | seller vendor
lend loan | borrow
lender | borrower
debtor | creditor
rent | buy
asset | liability
assets | liabilities
bull bullish | bear bearish
supply | demand
wholesale | retail
gross | net
taxable | taxfree
surplus | deficit
hire recruit | fire dismiss lay_off
employ | dismiss
employer | employee
teacher | student
mentor | mentee
doctor | patient
host | guest
landlord | tenant
winner | runner_up
attack offend | defend
attacker | defender
offense offensive | defense defensive
ally friend | enemy foe
war | peace
win | draw
love like | hate dislike
like | dislike
happy glad | sad unhappy
hope | despair
optimistic | pessimistic
calm | nervous
alone | together
together | separately apart
born | died
birth | death
live | die
life | death
healthy | sick ill
awake wake wake_up | asleep sleep
remember memorize | forget
learn | unlearn
agree | disagree
believe | doubt
praise | criticize blame
reward | punish
arrive | depart leave
arrival | departure
arrivals | departures
outbound | return
come | go
enter | exit leave
push | drag
throw | catch
pick_up | drop_off
pick | drop
raise lift | lower drop
inhale | exhale
find | lose
found | lost
appear | disappear vanish
appearance | disappearance
exist | vanish
present | absent missing
presence | absence
positive_number | negative_number
plus | minus
addition | subtraction
add | subtract
sum | difference
multiply | divide
multiplication | division
numerator | denominator
dividend | divisor
integral | derivative
integrate | differentiate
convex | concave
acute | obtuse
odd | even
prime | composite
linear | nonlinear
discrete | continuous
finite | infinite
rational | irrational
supervised | unsupervised
underfitting underfit | overfitting overfit
overestimate | underestimate
precision | recall
encoder_only | decoder_only
training train | inference
training | validation testing
overload | underload
overvalue | undervalue
overutilized | underutilized
assemble | disassemble
couple | decouple
engage | disengage
entangle | disentangle
arm | disarm
infect | disinfect
inherit | disinherit
own | disown
qualify | disqualify
integrate | disintegrate
obey comply | disobey violate
please | displease
centralize | decentralize
centralized | decentralized distributed
monolith monolithic | microservice microservices
tighten | loosen
stretch | squeeze
inflate | deflate
inflation | deflation
wrap | unwrap
box | unbox
tie | untie
fasten | unfasten
zip_up | unzip
roll | unroll
wind | unwind
bury | dig_up
cover | uncover
dress | undress
pin | unpin
star | unstar
mute silence | unmute
muted | unmuted
flag | unflag
mark | unmark
tag | untag
link | unlink
map | unmap
nest | unnest
pivot | unpivot
escape | unescape
quote | unquote
comment comment_out | uncomment
indent | unindent dedent outdent
set | unset clear reset
define | undefine
declare | undeclare
defined | undefined
clip | unclip
hook | unhook
park | unpark
snooze | unsnooze
taint | untaint
cordon | uncordon
drain | uncordon
shard | unshard
peer | unpeer
throttle | unthrottle
debug | release
verbose | quiet silent
loud | quiet silent
noisy | quiet
dirty | clean
cached | uncached
hit | miss
warm | cold
warm_start | cold_start
hot_path | cold_path
hot_standby | cold_standby
ssl_enabled | ssl_disabled
accept | drop
forward_proxy | reverse_proxy
forward | reverse
symmetric | asymmetric
public_key | private_key
authenticated | anonymous unauthenticated
anonymous | named
identified | unidentified
admin administrator superuser root | regular_user standard_user normal_user
human | bot
sandbox | production
simple | advanced
basic beginner | advanced expert
novice beginner | expert
junior | senior
major | minor
minor | patch
major | patch
critical | minor trivial
urgent | unimportant
important | unimportant trivial
relevant | irrelevant
legal lawful | illegal unlawful
formal | informal
official | unofficial
regular | irregular
normal | abnormal
typical usual | unusual atypical
ordinary | extraordinary
natural | artificial
organic | synthetic
domestic | foreign international
national | international
native | foreign
native | interpreted
compiled | interpreted
compile | decompile
compile_time | runtime run_time
compiletime | runtime
typed | untyped
statically_typed | dynamically_typed
absolute | relative
absolutely | relatively
specific | general generic
specify | generalize
abstract | concrete
theory | practice
theoretical | practical
objective | subjective
direct | indirect
directly | indirectly
clockwise | counterclockwise anticlockwise
rotate_left | rotate_right
portrait | landscape
square | round
straight | curved
smooth | rough
sharp | blunt dull
tight | loose
dense | sparse
solid | liquid hollow
opaque | transparent
uppercase upper_case | lowercase lower_case
capitalize | uncapitalize
big_endian | little_endian
bold | italic
north | south
northern | southern
east | west
eastern | western
male man boy | female woman girl
husband | wife
father dad | mother mum mom
brother | sister
son | daughter
uncle | aunt
king | queen
he | she
his | her
men | women
boys | girls
vegetarian vegan | meat
sweet | sour bitter
breakfast | lunch dinner
lunch | dinner
introvert introverted | extrovert extroverted
offline | hybrid
synced | unsynced
clone | fork
fetch | push
merge_commit | squash
soft_reset | hard_reset
soft_delete | hard_delete
dry_run | real_run
staged_rollout | full_rollout
with | without
graceful gracefully | forceful forcefully forcibly
graceful | abrupt
quiet | verbose
override | inherit
opaque | translucent
consistent | inconsistent
compatible | incompatible
complete | cancel abort
accepted | pending
pending | settled completed
resolve | reopen
resolved | unresolved open
solved | unsolved
finished done completed | unfinished pending
assigned | unassigned
read_receipt | delivery_receipt
seen read | unread unseen
paid | unpaid
verified | unverified
licensed | unlicensed
limited | unlimited
bounded | unbounded
managed | unmanaged
supported | unsupported deprecated
deprecate | undeprecate
initialised | uninitialised
indexed | unindexed
partitioned | unpartitioned
authorized | unauthorized
expected | unexpected
planned scheduled | unplanned unscheduled
handled | unhandled
resolved | unresolved
used | unused
able | unable
possible | impossible
legible | illegible
patient | impatient
online | in_person
fixed | variable floating adjustable
mild slight | severe
acute | chronic
benign | malignant
viral | bacterial
virus | bacterium bacteria
raw uncooked | cooked
fresh | frozen
fresh | canned
fresh | stale
vegan | vegetarian
guided | self_guided unguided
undergraduate | graduate postgraduate
married | single unmarried
married | divorced
carry_on | checked_baggage checked_luggage checked_bag
overnight | daytime
minimum | average
maximum | average
benefit | risk
cover | exclude
contain | free_of
second_hand secondhand | brand_new
abroad overseas | domestically locally
short_term | long_term
prevent | treat cure
individual | company
individual | group
personal | business
fastest quickest | cheapest
cheapest | safest
debit | credit
income | expense
donor | recipient
predator | prey
hardcover | paperback
rural | urban
coastal | inland
wedding | funeral
marriage | divorce
depart departure | arrive arrival
ascend | descend
asleep | awake
sweet | sour
sweet | bitter
sweet | salty savory
blunt dull | sharp
shallow | deep
rent lease | buy purchase
speaker | listener
extrovert | introvert
optimist | pessimist
amateur | professional
fiction | nonfiction
reptile | mammal
herbivore | carnivore
tenant | landlord
patient | doctor
"""

_MILD = """
question | answer
give | take
take | return
send | get
ask | tell
show | hide
keep | remove
keep | discard
help | hinder
start | finish
open | resolve
save | load
report | ignore
check | ignore
respect | ignore
watch | ignore
care | ignore
detect | ignore
follow | lead
fix repair | break
cause | prevent
cause | effect
cause | cure treat heal
cause | treatment cure remedy therapy
symptom | treatment cure remedy therapy
symptom | cause
avoid | eat
avoid | drink
avoid | use
avoid | choose
avoid | take
prevent avoid | cause
protect | expose
build | break
play | pause
play | stop
call | hang_up
answer | hang_up
rename | delete
rename | copy
copy | move
copy | delete
move | delete
view read | edit modify change
view | delete
view | create
list | delete
list | create
list | add
read | delete
check | change
create | update edit modify
add | update edit modify
update edit modify | delete remove
test | deploy
build | deploy
build | test
restart | stop
restart | start
stop | start
reject | ignore
clear | fill
freeze | cancel
cancel | renew extend
block | cancel
replace | keep
import | write
dump | restore
query | update
encrypt | hash
encrypt | sign
sign | verify
lint | format
compile | run
mount | format
profile | debug
log | print
reduce | eliminate
fork | join
duplicate | unique
input | parameter
sunny | rainy
winner | participant
"""
"""Pairs that differ in most tasks, and in some are two views of one."""

_CONVERSES = """
before after | above below | over under | greater_than less_than | more_than less_than | parent child | buy sell
send receive | lend borrow | older newer | faster slower | bigger smaller | higher lower | larger smaller | better
    worse
longer shorter | cheaper dearest | earlier later | upstream downstream | left right | client server | more less
north south | east west | teach learn | publish subscribe | push pull | import export
"""
"""Pairs of which each says the same as the other when its two sides change places."""

FIRM = 1.0
MILD = 0.5


@cache
def _table() -> dict[str, dict[str, float]]:
    table: dict[str, dict[str, float]] = {}
    for text, weight in ((_MILD, MILD), (_FIRM, FIRM)):
        for row in rows(text):
            sides = [[phrase_key(word) for word in side.split()] for side in row.split("|")]
            for one in sides[0]:
                for other in sides[1]:
                    if one != other:
                        table.setdefault(one, {})[other] = weight
                        table.setdefault(other, {})[one] = weight
    return table


@cache
def _allies() -> dict[str, set[str]]:
    table: dict[str, set[str]] = {}
    for row in rows(_FIRM):
        for side in row.split("|"):
            words = {phrase_key(word) for word in side.split()}
            for word in words:
                table.setdefault(word, set()).update(words)
    return table


@cache
def _converses() -> frozenset[frozenset[str]]:
    pairs = (pair.split() for row in rows(_CONVERSES) for pair in row.split("|"))
    return frozenset(frozenset(phrase_key(word) for word in pair) for pair in pairs)


_PREFIXES = ("un", "in", "im", "ir", "il", "dis", "non", "de", "anti", "mis")


def opposed(one: str, other: str) -> float:
    """Returns how surely two stems are opposites: `FIRM`, `MILD`, or 0.0 if they are not.

    Beyond the table, a word is opposed to itself with a negating prefix (set, unset; valid, invalid).
    """
    weight = _table().get(one, {}).get(other, 0.0)
    if weight or abs(len(one) - len(other)) > 4:
        return weight
    short, long = (one, other) if len(one) < len(other) else (other, one)
    prefix = long[: len(long) - len(short)]
    return FIRM if len(short) > 3 and prefix in _PREFIXES and long.endswith(short) else 0.0


def opposites(stem: str) -> tuple[str, ...]:
    """Returns the table's opposites of a stem."""
    return tuple(_table().get(stem, ()))


def allied(one: str, other: str) -> bool:
    """Tells whether two stems stand on the same side of a row."""
    return other in _allies().get(one, ())


def converse(one: str, other: str) -> bool:
    """Tells whether two opposites mean the same when what they relate changes places."""
    return frozenset((one, other)) in _converses()


def phrases() -> list[str]:
    """Returns the table's phrases, their words with an underscore between."""
    return [word for word in (_FIRM + _MILD).split() if "_" in word]
