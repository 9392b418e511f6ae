//! Selection trees as data; made by experiments/scheduling/learn_trees.py from the source's table. The source prints T3
//! only (see `tree`). These use other attributes and are as small as the source's.
use super::nodes::Attribute::*;
use super::nodes::Node::{self, Leaf, Split};
use crate::Algorithm::*;

/// 20 leaves; agrees with the table in 186 of 192 cases.
pub(super) const T1: Node = Split(
    Memory,
    12884901888.0000,
    &Split(
        Files,
        2.5000,
        &Split(
            Ratio,
            30.1000,
            &Split(Large, 0.5000, &Leaf(Noop), &Leaf(Aioli)),
            &Leaf(Noop),
        ),
        &Leaf(Aioli),
    ),
    &Split(
        Ratio,
        5.2700,
        &Split(
            Large,
            0.5000,
            &Split(
                Files,
                2.5000,
                &Leaf(Sjf),
                &Split(
                    Ratio,
                    1.5150,
                    &Split(Files, 6.0000, &Leaf(Sjf), &Leaf(Sjf)),
                    &Split(Files, 24.0000, &Leaf(ToAgg), &Leaf(Aioli)),
                ),
            ),
            &Split(
                Files,
                2.5000,
                &Leaf(Aioli),
                &Split(
                    Ratio,
                    1.5150,
                    &Leaf(Sjf),
                    &Split(
                        Files,
                        6.0000,
                        &Leaf(Aioli),
                        &Split(Files, 24.0000, &Leaf(ToAgg), &Leaf(Aioli)),
                    ),
                ),
            ),
        ),
        &Split(
            Files,
            2.5000,
            &Split(
                Large,
                0.5000,
                &Leaf(Sjf),
                &Split(Write, 0.5000, &Leaf(Sjf), &Leaf(Aioli)),
            ),
            &Split(
                Files,
                6.0000,
                &Split(Memory, 25769803776.0000, &Leaf(Mlf), &Leaf(Sjf)),
                &Leaf(Sjf),
            ),
        ),
    ),
);

/// 27 leaves; agrees with the table in 186 of 192 cases.
pub(super) const T2: Node = Split(
    Ratio,
    11.6450,
    &Split(
        Write,
        0.5000,
        &Split(
            Files,
            2.5000,
            &Split(Large, 0.5000, &Leaf(Sjf), &Leaf(Aioli)),
            &Split(
                Files,
                24.0000,
                &Split(
                    Large,
                    0.5000,
                    &Leaf(ToAgg),
                    &Split(Files, 6.0000, &Leaf(Aioli), &Leaf(ToAgg)),
                ),
                &Leaf(Aioli),
            ),
        ),
        &Split(
            Files,
            2.5000,
            &Split(Large, 0.5000, &Leaf(Sjf), &Leaf(Aioli)),
            &Split(
                Ratio,
                4.4150,
                &Split(BytesPerFile, 805306368.0000, &Leaf(Sjf), &Leaf(Sjf)),
                &Leaf(Sjf),
            ),
        ),
    ),
    &Split(
        Files,
        2.5000,
        &Split(
            Ratio,
            23.3750,
            &Split(
                Large,
                0.5000,
                &Split(Ratio, 18.2050, &Leaf(Sjf), &Leaf(Noop)),
                &Leaf(Aioli),
            ),
            &Split(
                Ratio,
                32.1850,
                &Leaf(Sjf),
                &Split(Ratio, 39.7950, &Leaf(Noop), &Leaf(Sjf)),
            ),
        ),
        &Split(
            Files,
            6.0000,
            &Split(
                Ratio,
                18.2050,
                &Leaf(Mlf),
                &Split(
                    Ratio,
                    39.7950,
                    &Split(
                        Ratio,
                        23.3750,
                        &Leaf(Aioli),
                        &Split(Ratio, 32.1850, &Leaf(Sjf), &Leaf(Aioli)),
                    ),
                    &Leaf(Mlf),
                ),
            ),
            &Split(
                Ratio,
                18.2050,
                &Leaf(Sjf),
                &Split(
                    Write,
                    0.5000,
                    &Split(
                        Ratio,
                        32.1850,
                        &Leaf(Sjf),
                        &Split(Ratio, 39.7950, &Leaf(Aioli), &Leaf(Sjf)),
                    ),
                    &Leaf(Aioli),
                ),
            ),
        ),
    ),
);

/// 9 leaves; agrees with the table in 140 of 192 cases.
pub(super) const T4: Node = Split(
    Ratio,
    11.6450,
    &Split(
        Write,
        0.5000,
        &Split(Large, 0.5000, &Leaf(ToAgg), &Leaf(Aioli)),
        &Split(Large, 0.5000, &Leaf(Sjf), &Leaf(Sjf)),
    ),
    &Split(
        Ratio,
        39.7950,
        &Split(
            Ratio,
            32.1850,
            &Split(
                Ratio,
                23.3750,
                &Split(Ratio, 18.2050, &Leaf(Sjf), &Leaf(Aioli)),
                &Leaf(Sjf),
            ),
            &Leaf(Aioli),
        ),
        &Leaf(Sjf),
    ),
);
